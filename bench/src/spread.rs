//! A set of measurements, and what a table shows of it.

/// Measurements of one thing, in one unit.
#[derive(Debug, Clone)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// Takes measurements in.
    ///
    /// # Panics
    ///
    /// When there are none.
    #[must_use]
    pub fn of(mut measurements: Vec<f64>) -> Self {
        assert!(!measurements.is_empty(), "nothing was measured");
        measurements.sort_by(f64::total_cmp);
        Self(measurements)
    }

    /// The measurement below which the given share of all lies.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "an index")]
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[((last as f64 * share).round() as usize).min(last)]
    }

    /// The middle one, and in brackets the least and the greatest.
    #[must_use]
    pub fn shown(&self, decimals: usize) -> String {
        let (least, greatest) = (self.percentile(0.0), self.percentile(1.0));
        format!("{:.decimals$} ({least:.decimals$} to {greatest:.decimals$})", self.median())
    }

    /// The middle one and the one that a hundredth of them exceed, in milliseconds.
    #[must_use]
    pub fn shown_ms(&self) -> String {
        format!("p50 {:.2} ms, p99 {:.2} ms", self.median(), self.percentile(0.99))
    }

    /// The middle one.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.percentile(0.5)
    }
}
