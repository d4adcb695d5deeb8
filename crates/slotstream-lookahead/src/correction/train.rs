//! Training: ridge regression of what the router says later against what the probe saw, cut down to
//! a low rank.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};
use slotstream_core::{ErrorKind, ExpertIdx, LayerIdx, SessionId};
use thiserror::Error;

use super::{CorrectionError, CorrectionShape, TargetCorrection};
use crate::error::BoxedSource;
use crate::{Sample, SampleSource, top_experts};

/// Rows that are multiplied at once.
const BATCH: usize = 256;

/// How a correction is trained.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainOptions {
    /// Groups of documents of the cross-validation, at most one a document.
    pub folds: usize,
    /// Penalties to choose from, in units of the mean variance of an input.
    pub penalties: Vec<f64>,
}

impl Default for TrainOptions {
    /// Five folds; penalties from 0.0001 to 100.
    fn default() -> Self {
        Self { folds: 5, penalties: (-4..=2).map(|power| 10_f64.powi(power)).collect() }
    }
}

/// A correction of one layer, and how well it fits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fit {
    /// The correction.
    pub correction: TargetCorrection,
    /// Rows it was trained from.
    pub rows: usize,
    /// The penalty that was chosen.
    pub penalty: f64,
    /// Squared error that is left in documents that were left out, before the rank was cut, to that
    /// of adding the mean alone.
    pub left: f64,
    /// Share of the squared correction that the rank keeps.
    pub kept: f64,
}

/// Why nothing could be trained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Fewer than two documents have samples of the layer.
    #[error(
        "{documents} documents have samples of layer {}: give at least 2, to choose the penalty by",
        target.get()
    )]
    #[non_exhaustive]
    TooFewDocuments {
        /// The layer.
        target: LayerIdx,
        /// How many have.
        documents: usize,
    },
    /// The samples cannot be read.
    #[error("cannot read the samples of layer {}", target.get())]
    #[non_exhaustive]
    Samples {
        /// The layer.
        target: LayerIdx,
        /// Why.
        source: BoxedSource,
    },
    /// The factors of a matrix did not come out.
    #[error("the samples of layer {} cannot be fitted: {what}", target.get())]
    #[non_exhaustive]
    NoSolution {
        /// The layer.
        target: LayerIdx,
        /// What failed.
        what: String,
    },
    /// The result is no correction.
    #[error("the correction of layer {} cannot be used", target.get())]
    #[non_exhaustive]
    Correction {
        /// The layer.
        target: LayerIdx,
        /// Why.
        source: CorrectionError,
    },
}

impl TrainError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Samples { .. } => ErrorKind::Transient,
            _ => ErrorKind::User,
        }
    }
}

/// Sums over rows `x` `[hidden]` (the mixed input) and `y` `[experts]` (truth less tap).
#[derive(Clone)]
struct Sums {
    rows: usize,
    x: Mat<f64>,
    y: Mat<f64>,
    xx: Mat<f64>,
    xy: Mat<f64>,
    yy: f64,
}

impl Sums {
    fn new(shape: CorrectionShape) -> Self {
        let CorrectionShape { hidden, experts, .. } = shape;
        Self {
            rows: 0,
            x: Mat::zeros(hidden, 1),
            y: Mat::zeros(experts, 1),
            xx: Mat::zeros(hidden, hidden),
            xy: Mat::zeros(hidden, experts),
            yy: 0.0,
        }
    }

    /// Adds rows: `x` `[hidden, rows]`, `y` `[experts, rows]`.
    fn add(&mut self, x: MatRef<'_, f64>, y: MatRef<'_, f64>) {
        self.rows += x.ncols();
        let ones = Mat::from_fn(x.ncols(), 1, |_, _| 1.0);
        matmul(&mut self.x, Accum::Add, x, &ones, 1.0, Par::Seq);
        matmul(&mut self.y, Accum::Add, y, &ones, 1.0, Par::Seq);
        matmul(&mut self.xx, Accum::Add, x, x.transpose(), 1.0, Par::Seq);
        matmul(&mut self.xy, Accum::Add, x, y.transpose(), 1.0, Par::Seq);
        self.yy += y.squared_norm_l2();
    }

    fn plus(&self, other: &Self, sign: f64) -> Self {
        let scaled = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| sign * m[(i, j)]);
        Self {
            rows: if sign > 0.0 { self.rows + other.rows } else { self.rows - other.rows },
            x: &self.x + scaled(&other.x),
            y: &self.y + scaled(&other.y),
            xx: &self.xx + scaled(&other.xx),
            xy: &self.xy + scaled(&other.xy),
            yy: self.yy + sign * other.yy,
        }
    }

    /// The same sums with `x` taken from `at.0` and `y` from `at.1`.
    fn around(&self, (mu, delta): (&Mat<f64>, &Mat<f64>)) -> Self {
        let rows = self.rows as f64;
        let square = |(i, j): (usize, usize)| {
            self.xx[(i, j)] - self.x[(i, 0)] * mu[(j, 0)] - mu[(i, 0)] * self.x[(j, 0)]
                + rows * mu[(i, 0)] * mu[(j, 0)]
        };
        let cross = |(i, j): (usize, usize)| {
            self.xy[(i, j)] - self.x[(i, 0)] * delta[(j, 0)] - mu[(i, 0)] * self.y[(j, 0)]
                + rows * mu[(i, 0)] * delta[(j, 0)]
        };
        let inner: f64 = (0..delta.nrows())
            .map(|j| delta[(j, 0)] * (rows * delta[(j, 0)] - 2.0 * self.y[(j, 0)]))
            .sum();
        Self {
            rows: self.rows,
            x: Mat::from_fn(mu.nrows(), 1, |i, _| self.x[(i, 0)] - rows * mu[(i, 0)]),
            y: Mat::from_fn(delta.nrows(), 1, |j, _| self.y[(j, 0)] - rows * delta[(j, 0)]),
            xx: Mat::from_fn(mu.nrows(), mu.nrows(), |i, j| square((i, j))),
            xy: Mat::from_fn(mu.nrows(), delta.nrows(), |i, j| cross((i, j))),
            yy: self.yy + inner,
        }
    }

    fn means(&self) -> (Mat<f64>, Mat<f64>) {
        let rows = self.rows.max(1) as f64;
        let mean = |m: &Mat<f64>| Mat::from_fn(m.nrows(), 1, |i, _| m[(i, 0)] / rows);
        (mean(&self.x), mean(&self.y))
    }
}

/// The regression of centred sums, for any penalty.
struct Ridge {
    /// Eigenvectors of the inputs' squares, `[hidden, hidden]`, and their values.
    vectors: Mat<f64>,
    values: Vec<f64>,
    /// `vectors' xy`, `[hidden, experts]`.
    turned: Mat<f64>,
    /// Mean of the values: the unit of a penalty.
    unit: f64,
}

impl Ridge {
    fn new(sums: &Sums) -> Result<Self, String> {
        let eigen = sums.xx.self_adjoint_eigen(Side::Lower).map_err(|e| format!("{e:?}"))?;
        let vectors = eigen.U().to_owned();
        let diagonal = eigen.S().column_vector();
        let values: Vec<f64> = (0..diagonal.nrows()).map(|i| diagonal[i].max(0.0)).collect();
        let turned = product(vectors.transpose(), sums.xy.as_ref());
        let unit = values.iter().sum::<f64>() / values.len().max(1) as f64;
        Ok(Self { vectors, values, turned, unit })
    }

    /// Weights in the basis of the eigenvectors, `[hidden, experts]`.
    fn weights(&self, penalty: f64) -> Mat<f64> {
        let by = |value: f64| {
            let sum = value + penalty * self.unit;
            // All inputs are the same: there is nothing to be learnt from them.
            if sum > 0.0 { 1.0 / sum } else { 0.0 }
        };
        Mat::from_fn(self.turned.nrows(), self.turned.ncols(), |i, j| {
            self.turned[(i, j)] * by(self.values[i])
        })
    }

    /// Squared error on other rows, whose sums are around this one's means.
    fn errors(&self, others: &Sums, penalties: &[f64]) -> Vec<f64> {
        let xx = product(self.vectors.transpose(), others.xx.as_ref());
        let xx = product(xx.as_ref(), self.vectors.as_ref());
        let xy = product(self.vectors.transpose(), others.xy.as_ref());
        let error = |penalty: &f64| {
            let weights = self.weights(*penalty);
            let ahead = product(xx.as_ref(), weights.as_ref());
            others.yy - 2.0 * inner(&weights, &xy) + inner(&weights, &ahead)
        };
        penalties.iter().map(error).collect()
    }
}

fn product(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(&mut out, Accum::Replace, a, b, 1.0, Par::Seq);
    out
}

fn inner(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    let column = |j| (0..a.nrows()).map(|i| a[(i, j)] * b[(i, j)]).sum::<f64>();
    (0..a.ncols()).map(column).sum()
}

/// Trains the correction of a layer from the samples of `documents`: ridge regression of truth less
/// tap on the mixed input, the penalty chosen by leaving out a group of documents at a time, then
/// the best approximation of `shape.rank` on the training rows (reduced-rank regression).
///
/// Holds up to `folds + 3` matrices of `[hidden, hidden + experts]` in f64. Samples of other
/// documents, of other lengths and with numbers that are not finite are left out.
///
/// # Errors
/// [`TrainError`].
pub fn fit(
    source: &dyn SampleSource,
    target: LayerIdx,
    documents: &[SessionId],
    shape: CorrectionShape,
    options: &TrainOptions,
) -> Result<Fit, TrainError> {
    let folds = sums(source, target, documents, shape, options.folds)?;
    let empty = Sums::new(shape);
    let all = folds.iter().fold(empty, |all, fold| all.plus(fold, 1.0));
    let no_solution = |what| TrainError::NoSolution { target, what };
    let mut errors = vec![0.0; options.penalties.len()];
    let mut base = 0.0;
    for fold in &folds {
        let train = all.plus(fold, -1.0);
        let (mu, delta) = train.means();
        let around = fold.around((&mu, &delta));
        base += around.yy;
        let ridge = Ridge::new(&train.around((&mu, &delta))).map_err(no_solution)?;
        let found = ridge.errors(&around, &options.penalties);
        errors.iter_mut().zip(found).for_each(|(sum, error)| *sum += error);
    }
    let best = errors.iter().zip(&options.penalties).min_by(|a, b| a.0.total_cmp(b.0));
    let (error, penalty) = best.ok_or_else(|| no_solution("no penalty to choose from".into()))?;

    let means = all.means();
    let centred = all.around((&means.0, &means.1));
    let ridge = Ridge::new(&centred).map_err(no_solution)?;
    let weights = product(ridge.vectors.as_ref(), ridge.weights(*penalty).as_ref());
    let (a, b, kept) = cut(&weights, &centred.xx, shape.rank).map_err(no_solution)?;
    let row_major = |m: &Mat<f64>| -> Vec<f32> {
        (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)] as f32)).collect()
    };
    let (mu, delta) = (row_major(&means.0), row_major(&means.1));
    let correction = TargetCorrection::new(shape, row_major(&a), row_major(&b), mu, delta)
        .map_err(|source| TrainError::Correction { target, source })?;
    let left = if base > 0.0 { error / base } else { 0.0 };
    Ok(Fit { correction, rows: all.rows, penalty: *penalty, left, kept })
}

/// The factors of rank `rank` that come nearest to `weights` on inputs with these squares, and the
/// share of the squared product that they keep.
fn cut(
    weights: &Mat<f64>,
    squares: &Mat<f64>,
    rank: usize,
) -> Result<(Mat<f64>, Mat<f64>, f64), String> {
    let ahead = product(squares.as_ref(), weights.as_ref());
    let fitted = product(weights.transpose(), ahead.as_ref());
    let eigen = fitted.self_adjoint_eigen(Side::Lower).map_err(|e| format!("{e:?}"))?;
    let values = eigen.S().column_vector();
    let experts = values.nrows();
    // The values ascend. What has no direction of its own is nought.
    let directions = Mat::from_fn(experts, rank, |i, j| match experts.checked_sub(j + 1) {
        Some(column) => eigen.U()[(i, column)],
        None => 0.0,
    });
    let value = |i: usize| values[i].max(0.0);
    let whole: f64 = (0..experts).map(value).sum();
    let top: f64 = (0..experts).rev().take(rank).map(value).sum();
    let a = product(weights.as_ref(), directions.as_ref());
    let kept = if whole > 0.0 { top / whole } else { 1.0 };
    Ok((a, directions.transpose().to_owned(), kept))
}

/// The sums of each fold.
fn sums(
    source: &dyn SampleSource,
    target: LayerIdx,
    documents: &[SessionId],
    shape: CorrectionShape,
    folds: usize,
) -> Result<Vec<Sums>, TrainError> {
    let samples = |source| TrainError::Samples { target, source };
    let mut rows: Vec<(SessionId, usize)> = documents.iter().map(|d| (*d, 0)).collect();
    let count = &mut |sample: &Sample<'_>| {
        if let Some((_, rows)) = rows.iter_mut().find(|(d, _)| *d == sample.session) {
            *rows += usize::from(usable(sample, shape));
        }
    };
    source.samples(target, count).map_err(samples)?;
    rows.retain(|(_, rows)| *rows > 0);
    if rows.len() < 2 {
        return Err(TrainError::TooFewDocuments { target, documents: rows.len() });
    }
    // The longest document first, each to the fold with the fewest rows.
    rows.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
    let mut sizes = vec![0; folds.clamp(2, rows.len())];
    let mut fold_of = Vec::with_capacity(rows.len());
    for (document, rows) in rows {
        let smallest = (0..sizes.len()).min_by_key(|fold| sizes[*fold]).unwrap_or_default();
        sizes[smallest] += rows;
        fold_of.push((document, smallest));
    }

    let mut folds = vec![Sums::new(shape); sizes.len()];
    let mut batch = Batch::new(shape);
    let visit = &mut |sample: &Sample<'_>| {
        let fold = fold_of.iter().find(|(document, _)| *document == sample.session);
        let Some((_, fold)) = fold.filter(|_| usable(sample, shape)) else { return };
        if batch.rows == BATCH || batch.fold != *fold {
            batch.empty_into(&mut folds);
            batch.fold = *fold;
        }
        batch.push(sample);
    };
    source.samples(target, visit).map_err(samples)?;
    batch.empty_into(&mut folds);
    Ok(folds)
}

fn usable(sample: &Sample<'_>, shape: CorrectionShape) -> bool {
    let Sample { mixed, tap, truth, .. } = sample;
    let lengths = (mixed.len(), tap.len(), truth.len());
    lengths == (shape.hidden, shape.experts, shape.experts)
        && [mixed, tap, truth].iter().all(|values| values.iter().all(|value| value.is_finite()))
}

/// Rows of one fold, in columns.
struct Batch {
    fold: usize,
    rows: usize,
    x: Mat<f64>,
    y: Mat<f64>,
}

impl Batch {
    fn new(shape: CorrectionShape) -> Self {
        let CorrectionShape { hidden, experts, .. } = shape;
        Self { fold: 0, rows: 0, x: Mat::zeros(hidden, BATCH), y: Mat::zeros(experts, BATCH) }
    }

    fn push(&mut self, sample: &Sample<'_>) {
        for (i, value) in sample.mixed.iter().enumerate() {
            self.x[(i, self.rows)] = f64::from(*value);
        }
        for (i, (truth, tap)) in sample.truth.iter().zip(sample.tap).enumerate() {
            self.y[(i, self.rows)] = f64::from(*truth) - f64::from(*tap);
        }
        self.rows += 1;
    }

    fn empty_into(&mut self, folds: &mut [Sums]) {
        let (x, y) = (self.x.subcols(0, self.rows), self.y.subcols(0, self.rows));
        folds[self.fold].add(x, y);
        self.rows = 0;
    }
}

/// How many of the router's `top_k` experts the tap names, and the corrected tap, over the samples
/// of `documents`: shares of 1, and the number of rows.
///
/// # Errors
/// [`TrainError::Samples`].
pub fn agreement(
    source: &dyn SampleSource,
    target: LayerIdx,
    documents: &[SessionId],
    correction: &TargetCorrection,
    top_k: usize,
) -> Result<(f64, f64, usize), TrainError> {
    let (mut rows, mut before, mut after) = (0, 0, 0);
    let (mut low, mut logits) = (Vec::new(), Vec::new());
    let (mut truth, mut named): (Vec<ExpertIdx>, Vec<ExpertIdx>) = (Vec::new(), Vec::new());
    let visit = &mut |sample: &Sample<'_>| {
        if !documents.contains(&sample.session) {
            return;
        }
        rows += 1;
        top_experts(sample.truth, top_k, &mut truth);
        let mut right = |logits: &[f32]| {
            top_experts(logits, top_k, &mut named);
            named.iter().filter(|expert| truth.contains(expert)).count()
        };
        before += right(sample.tap);
        logits.clear();
        logits.extend_from_slice(sample.tap);
        correction.apply(sample.mixed, &mut logits, &mut low);
        after += right(&logits);
    };
    source.samples(target, visit).map_err(|source| TrainError::Samples { target, source })?;
    let share = |right: usize| right as f64 / (rows * top_k).max(1) as f64;
    Ok((share(before), share(after), rows))
}
