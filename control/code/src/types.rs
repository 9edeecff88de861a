//! Types: stored types, types of computations, and the layout of structs, which is C's on 64-bit Linux.

use std::fmt;
use std::sync::Arc;

selvedge_units::named! {
    /// The types of computations. Smaller stored types become `Int` when read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Scalar {
        /// 32 bits, signed, two's complement.
        Int = "int",
        /// 32 bits, unsigned.
        Unsigned = "unsigned",
        /// 64 bits, signed.
        Long = "long",
        /// 64 bits, unsigned.
        UnsignedLong = "unsigned long",
        /// IEEE 754 binary64.
        Double = "double",
    }
}

impl Scalar {
    /// Whether it has a sign; doubles do.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Int | Self::Long | Self::Double)
    }

    /// Whether it takes 64 bits.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Long | Self::UnsignedLong | Self::Double)
    }

    /// The type of an operation on both: C's usual arithmetic conversions.
    pub(crate) fn with(self, other: Self) -> Self {
        let order = [Self::Double, Self::UnsignedLong, Self::Long, Self::Unsigned, Self::Int];
        order.into_iter().find(|one| *one == self || *one == other).unwrap_or(Self::Int)
    }
}

selvedge_units::named! {
    /// The types of variables and members.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Storage {
        /// 8 bits, 0 to 255 everywhere.
        Char = "char",
        /// 16 bits, signed.
        Short = "short",
        /// 16 bits, unsigned.
        UnsignedShort = "unsigned short",
        /// 32 bits, signed.
        Int = "int",
        /// 32 bits, unsigned.
        Unsigned = "unsigned",
        /// 64 bits, signed.
        Long = "long",
        /// 64 bits, unsigned.
        UnsignedLong = "unsigned long",
        /// IEEE 754 binary64.
        Double = "double",
    }
}

impl Storage {
    /// Size and alignment, in bytes.
    pub fn size(self) -> u32 {
        match self {
            Self::Char => 1,
            Self::Short | Self::UnsignedShort => 2,
            Self::Int | Self::Unsigned => 4,
            Self::Long | Self::UnsignedLong | Self::Double => 8,
        }
    }

    /// Its type when read.
    pub fn scalar(self) -> Scalar {
        match self {
            Self::Char | Self::Short | Self::UnsignedShort | Self::Int => Scalar::Int,
            Self::Unsigned => Scalar::Unsigned,
            Self::Long => Scalar::Long,
            Self::UnsignedLong => Scalar::UnsignedLong,
            Self::Double => Scalar::Double,
        }
    }
}

/// The type of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number.
    Scalar(Storage),
    /// This number of elements of one type.
    Array(Arc<Self>, u32),
    /// Members by name.
    Struct(Arc<Struct>),
}

impl Type {
    /// The number of its bytes.
    pub fn size(&self) -> u32 {
        match self {
            Self::Scalar(storage) => storage.size(),
            Self::Array(of, length) => of.size().saturating_mul(*length),
            Self::Struct(layout) => layout.size,
        }
    }

    /// Its alignment.
    pub fn align(&self) -> u32 {
        match self {
            Self::Scalar(storage) => storage.size(),
            Self::Array(of, _) => of.align(),
            Self::Struct(layout) => layout.align,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut of, mut lengths) = (self, String::new());
        while let Self::Array(inner, length) = of {
            lengths += &format!("[{length}]");
            of = inner;
        }
        match of {
            Self::Scalar(storage) => f.write_str(storage.name())?,
            Self::Struct(layout) => write!(f, "struct {}", layout.name)?,
            Self::Array(..) => {}
        }
        f.write_str(&lengths)
    }
}

/// A struct with its members' offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Its members, in order.
    pub members: Vec<Member>,
    /// Its size in bytes, padding included.
    pub size: u32,
    /// Its alignment.
    pub align: u32,
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its offset, in bytes.
    pub offset: u32,
}

impl Struct {
    /// Lays members out as C does. Sizes that do not fit saturate; the caller checks the size.
    pub fn new(name: &str, members: impl IntoIterator<Item = (String, Type)>) -> Self {
        let (mut size, mut align, mut laid) = (0_u32, 1, Vec::new());
        for (name, ty) in members {
            let offset = size.saturating_add(ty.align() - 1) / ty.align() * ty.align();
            size = offset.saturating_add(ty.size());
            align = align.max(ty.align());
            laid.push(Member { name, ty, offset });
        }
        let size = size.saturating_add(align - 1) / align * align;
        Self { name: name.to_owned(), members: laid, size, align }
    }

    /// The member of a name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}
