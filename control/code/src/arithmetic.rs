//! The meaning of each operation, on values in the typed form. All back ends give the same results. Integers
//! wrap; `x / 0` is 0 and `x % 0` is x; a shift's count is taken modulo the width. A double becomes the
//! nearest integer towards zero that the type holds, and NaN becomes 0. A computed NaN has the bits
//! 0x7ff8000000000000.

use crate::syntax::{Comparison, Operator};
use crate::types::{Scalar, Storage};

/// The only computed NaN.
const NAN: u64 = 0x7ff8_0000_0000_0000;

macro_rules! integer {
    ($operator:expr, $a:expr, $b:expr, $type:ty) => {{
        let (a, b) = ($a as $type, $b as $type);
        match $operator {
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide => a.checked_div(b).unwrap_or(if b == 0 { 0 } else { a }),
            Operator::Remainder => a.checked_rem(b).unwrap_or(if b == 0 { a } else { 0 }),
            Operator::ShiftLeft => a.wrapping_shl(b as u32),
            Operator::ShiftRight => a.wrapping_shr(b as u32),
            Operator::And => a & b,
            Operator::Or => a | b,
            Operator::Xor => a ^ b,
        }
    }};
}

/// An operation on two values of a type.
pub(crate) fn operate(operator: Operator, ty: Scalar, a: u64, b: u64) -> u64 {
    match ty {
        Scalar::Int => integer!(operator, a, b, i32) as i64 as u64,
        Scalar::Unsigned => u64::from(integer!(operator, a, b, u32)),
        Scalar::Long => integer!(operator, a, b, i64) as u64,
        Scalar::UnsignedLong => integer!(operator, a, b, u64),
        Scalar::Double => {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            let done = match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
                // The checker lets no other operator through.
                _ => f64::NAN,
            };
            if done.is_nan() { NAN } else { done.to_bits() }
        }
    }
}

/// A comparison of two values of a type.
pub(crate) fn compare(comparison: Comparison, ty: Scalar, a: u64, b: u64) -> bool {
    fn by<T: PartialOrd>(comparison: Comparison, a: T, b: T) -> bool {
        match comparison {
            Comparison::Equal => a == b,
            Comparison::NotEqual => a != b,
            Comparison::Less => a < b,
            Comparison::LessEqual => a <= b,
            Comparison::Greater => a > b,
            Comparison::GreaterEqual => a >= b,
        }
    }
    match ty {
        Scalar::Int | Scalar::Long => by(comparison, a as i64, b as i64),
        Scalar::Unsigned | Scalar::UnsignedLong => by(comparison, a, b),
        Scalar::Double => by(comparison, f64::from_bits(a), f64::from_bits(b)),
    }
}

/// Converts a value of one type to another.
pub(crate) fn convert(from: Scalar, to: Scalar, value: u64) -> u64 {
    if from == Scalar::Double {
        let value = f64::from_bits(value);
        return match to {
            Scalar::Int => value as i32 as i64 as u64,
            Scalar::Unsigned => u64::from(value as u32),
            Scalar::Long => value as i64 as u64,
            Scalar::UnsignedLong => value as u64,
            Scalar::Double => value.to_bits(),
        };
    }
    match to {
        Scalar::Int => value as i32 as i64 as u64,
        Scalar::Unsigned => u64::from(value as u32),
        Scalar::Long | Scalar::UnsignedLong => value,
        Scalar::Double if from.is_signed() => (value as i64 as f64).to_bits(),
        Scalar::Double => (value as f64).to_bits(),
    }
}

/// A value after it was stored in a variable of a type and read back.
pub(crate) fn narrow(storage: Storage, value: u64) -> u64 {
    match storage {
        Storage::Char => u64::from(value as u8),
        Storage::Short => value as i16 as i64 as u64,
        Storage::UnsignedShort => u64::from(value as u16),
        Storage::Int => value as i32 as i64 as u64,
        Storage::Unsigned => u64::from(value as u32),
        Storage::Long | Storage::UnsignedLong | Storage::Double => value,
    }
}

/// A double with its sign inverted.
pub(crate) fn negate(value: u64) -> u64 {
    value ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_c_leaves_open_is_stated() {
        let int = |operator, a: i32, b: i32| {
            operate(operator, Scalar::Int, a as i64 as u64, b as i64 as u64) as i64
        };
        assert_eq!(int(Operator::Divide, 7, 0), 0);
        assert_eq!(int(Operator::Remainder, 7, 0), 7);
        assert_eq!(int(Operator::Divide, i32::MIN, -1), i64::from(i32::MIN));
        assert_eq!(int(Operator::Remainder, i32::MIN, -1), 0);
        assert_eq!(int(Operator::Divide, -7, 2), -3);
        assert_eq!(int(Operator::Remainder, -7, 2), -1);
        assert_eq!(int(Operator::ShiftLeft, 1, 33), 2);
        assert_eq!(int(Operator::ShiftRight, -8, 1), -4);
        assert_eq!(int(Operator::Add, i32::MAX, 1), i64::from(i32::MIN));
    }

    #[test]
    fn doubles_become_the_nearest_integer_that_fits() {
        let int = |value: f64| convert(Scalar::Double, Scalar::Int, value.to_bits()) as i64;
        assert_eq!(int(-1.9), -1);
        assert_eq!(int(1e30), i64::from(i32::MAX));
        assert_eq!(int(f64::NAN), 0);
        assert_eq!(convert(Scalar::Double, Scalar::Unsigned, (-1.0_f64).to_bits()), 0);
    }

    #[test]
    fn a_calculated_nan_has_stated_bits() {
        let odd = 0xfff8_0000_0000_0123;
        assert_eq!(operate(Operator::Add, Scalar::Double, odd, 0), NAN);
        let zero = 0.0_f64.to_bits();
        assert_eq!(operate(Operator::Divide, Scalar::Double, zero, zero), NAN);
    }
}
