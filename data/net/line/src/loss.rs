//! Which packets a link loses: each by itself, or in bursts.

use selvedge_units::Share;

use crate::random::Random;

/// A model of loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet is lost with this probability.
    Bernoulli(Share),
    /// A good and a bad state, which change before a packet (E. N. Gilbert, 1960; E. O. Elliott, 1963).
    GilbertElliott {
        /// From good to bad.
        worsens: Share,
        /// From bad to good.
        recovers: Share,
        /// A packet is lost while good.
        good: Share,
        /// A packet is lost while bad.
        bad: Share,
    },
}

/// Decides packet by packet. It begins good.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    is_bad: bool,
    random: Random,
}

impl Loss {
    pub(crate) const fn new(random: Random) -> Self {
        Self { is_bad: false, random }
    }

    /// Another model holds from the next packet on.
    pub(crate) const fn begin_anew(&mut self) {
        self.is_bad = false;
    }

    /// Whether the next packet is lost.
    #[inline]
    pub(crate) fn loses_next(&mut self, model: LossModel) -> bool {
        match model {
            LossModel::None => false,
            LossModel::Bernoulli(probability) => self.random.happens(probability),
            LossModel::GilbertElliott { worsens, recovers, good, bad } => {
                self.is_bad ^= self.random.happens(if self.is_bad { recovers } else { worsens });
                self.random.happens(if self.is_bad { bad } else { good })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(model: LossModel) -> Vec<bool> {
        let mut loss = Loss::new(Random::named(3, "loss"));
        (0..200_000).map(|_| loss.loses_next(model)).collect()
    }

    fn share(text: &str) -> Share {
        text.parse().expect("a share")
    }

    #[test]
    fn losses_of_a_burst_come_together() {
        // Bad for 5 packets at the mean, once in 100: 5 in 105 are lost, in bursts of 5.
        let model = LossModel::GilbertElliott {
            worsens: share("1 %"),
            recovers: share("20 %"),
            good: Share::ZERO,
            bad: Share::ONE,
        };
        let lost = losses(model);
        let count = lost.iter().filter(|lost| **lost).count();
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        assert!((9_000..10_050).contains(&count), "{count} lost");
        assert!((4.7..5.3).contains(&(count as f64 / bursts as f64)), "{bursts} bursts");
        // As many, each by itself, come in bursts of little more than one.
        let lost = losses(LossModel::Bernoulli(share("4.76 %")));
        let count = lost.iter().filter(|lost| **lost).count();
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        assert!((9_000..10_050).contains(&count), "{count} lost");
        assert!((count as f64 / bursts as f64) < 1.1, "{bursts} bursts");
    }
}
