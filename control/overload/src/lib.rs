//! The listen-queue controller of Q-Fabric's Figure 21: it sets the length of a server's queue of new
//! connections, from the number of connections in service and the number waiting to be accepted.
//!
//! Both must be above their thresholds for the queue to be shortened. Many waiting connections while few are
//! served are a burst that will be served soon; many served ones while few wait will end by themselves. The
//! kernel rejects connections beyond a short queue at their first segment, before they cost the server
//! anything.
//!
//! The length falls by half and grows by a step, so that it settles; the paper leaves the steps open. Pure:
//! the load is an argument, and the length is the result.
#![forbid(unsafe_code)]

/// The parameters of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The queue's length when there is no overload, in connections; at least 1.
    pub longest: u32,
    /// Never shorter than this; at least 1 and at most `longest`.
    pub shortest: u32,
    /// Connections in service, above which the server counts as busy.
    pub serving: u32,
    /// Connections that wait to be accepted, above which the queue counts as full.
    pub waiting: u32,
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The lengths are in the wrong order.
    #[error(
        "the shortest queue is {shortest} and the longest {longest}; give 1 <= shortest <= longest"
    )]
    Lengths {
        /// As given.
        shortest: u32,
        /// As given.
        longest: u32,
    },
}

/// The load of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connections that it serves.
    pub serving: u32,
    /// Connections that wait to be accepted.
    pub waiting: u32,
}

/// The controller of one listening socket.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    config: Config,
    length: u32,
}

impl Controller {
    /// A controller with the longest queue.
    ///
    /// # Errors
    /// If the lengths are invalid.
    pub const fn new(config: Config) -> Result<Self, ConfigError> {
        let Config { shortest, longest, .. } = config;
        if shortest == 0 || shortest > longest {
            return Err(ConfigError::Lengths { shortest, longest });
        }
        Ok(Self { config, length: longest })
    }

    /// The queue's length as last decided.
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// Whether a load is above both thresholds.
    pub const fn is_overloaded(&self, load: Load) -> bool {
        load.serving > self.config.serving && load.waiting > self.config.waiting
    }

    /// Takes a new load into account. Returns the new length, if it has changed. Constant time.
    pub fn observe(&mut self, load: Load) -> Option<u32> {
        let Config { shortest, longest, waiting, .. } = self.config;
        let before = self.length;
        self.length = if self.is_overloaded(load) {
            // Half of the waiting connections: a length beyond that would change nothing.
            (before.min(load.waiting.saturating_add(1)) / 2).max(shortest)
        } else if load.waiting.saturating_mul(2) > waiting && before < longest {
            // Neither full nor empty: no change.
            before
        } else {
            before.saturating_add((before / 4).max(1)).min(longest)
        };
        (self.length != before).then_some(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: Config = Config { longest: 512, shortest: 8, serving: 30, waiting: 20 };

    #[test]
    fn both_thresholds_have_to_be_passed() {
        let mut controller = Controller::new(CONFIG).unwrap();
        assert_eq!(controller.observe(Load { serving: 10, waiting: 400 }), None, "a burst");
        assert_eq!(controller.observe(Load { serving: 90, waiting: 20 }), None, "ends by itself");
        assert_eq!(controller.observe(Load { serving: 31, waiting: 400 }), Some(200));
        assert_eq!(controller.observe(Load { serving: 31, waiting: 200 }), Some(100));
    }

    #[test]
    fn it_settles_and_recovers() {
        let mut controller = Controller::new(CONFIG).unwrap();
        for _ in 0..20 {
            controller.observe(Load { serving: 100, waiting: 100 });
        }
        assert_eq!(controller.length(), 8);
        // Nearly full queues keep it where it is.
        assert_eq!(controller.observe(Load { serving: 100, waiting: 15 }), None);
        for _ in 0..40 {
            controller.observe(Load::default());
        }
        assert_eq!(controller.length(), 512);
    }

    #[test]
    fn lengths_have_an_order() {
        let wrong = Controller::new(Config { shortest: 9, longest: 8, ..CONFIG }).unwrap_err();
        assert!(wrong.to_string().contains("9 and the longest 8"));
        assert!(Controller::new(Config { shortest: 0, ..CONFIG }).is_err());
    }

    proptest! {
        #[test]
        fn it_stays_between_its_bounds(
            loads in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..100),
        ) {
            let mut controller = Controller::new(CONFIG).unwrap();
            for (serving, waiting) in loads {
                let before = controller.length();
                let load = Load { serving, waiting };
                let changed = controller.observe(load);
                prop_assert!((8..=512).contains(&controller.length()));
                prop_assert_eq!(changed.is_some(), controller.length() != before);
                if controller.is_overloaded(load) {
                    prop_assert!(controller.length() <= before);
                }
            }
        }
    }
}
