//! The end of a message's way up: the order in which the application gets messages.
//!
//! Elements that work on a connection at once may reorder its messages between the transport and
//! this place; the transport's numbers restore the order.

use std::collections::{BTreeMap, VecDeque};

use crate::concurrency::Concurrency;
use crate::message::Message;
use crate::module::{Call, Reason};

/// The order in which messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// In the order of arrival.
    #[default]
    Unordered,
    /// No message after one that was sent later.
    NoOvertaking,
    /// All messages, in the order of sending.
    InOrder,
}

/// Messages that wait for the application.
#[derive(Debug, Default)]
pub struct Delivery {
    order: Order,
    next: u64,
    early: BTreeMap<u64, Message>,
    ready: VecDeque<Message>,
    bytes: usize,
}

/// A gap is skipped when this number of messages wait behind it: then a module above the transport
/// dropped a message, which happens only to forged or corrupt ones.
const EARLY_MAX: usize = 512;

impl Delivery {
    /// A queue that delivers in this order.
    #[must_use]
    pub fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// Adds a message from the modules.
    pub fn push<C: Concurrency>(&mut self, message: Message, call: &Call<'_, C>) {
        match self.order {
            Order::Unordered => self.arrive(message),
            _ if message.ticket < self.next => call.drop(message, Reason::Late),
            Order::NoOvertaking => {
                self.next = message.ticket + 1;
                self.arrive(message);
            }
            Order::InOrder => {
                self.early.insert(message.ticket, message);
                if self.early.len() > EARLY_MAX
                    && let Some((&first, _)) = self.early.first_key_value()
                {
                    self.next = first;
                }
                while let Some(message) = self.early.remove(&self.next) {
                    self.next += 1;
                    self.arrive(message);
                }
            }
        }
    }

    /// The next message for the application.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }

    fn arrive(&mut self, message: Message) {
        self.bytes += message.len();
        self.ready.push_back(message);
    }

    /// The bytes of the messages that can be popped.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of messages that can be popped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no message can be popped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}
