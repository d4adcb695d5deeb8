//! The hash against the real model's constants and against a naive model.

use proptest::prelude::*;
use slotstream_ngram::{NgramError, NgramHasher};

const RESET: u32 = 248_044;
const MULTIPLIERS: [i64; 3] = [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071];
const SIZES: [i64; 16] = [
    20_000_003, 20_000_023, 20_000_033, 20_000_047, 20_000_059, 20_000_063, 20_000_069, 20_000_077,
    20_000_081, 20_000_093, 20_000_107, 20_000_147, 20_000_153, 20_000_159, 20_000_161, 20_000_171,
];

fn real() -> NgramHasher {
    let offsets: Vec<i64> = (0..16).map(|i| SIZES[..i].iter().sum()).collect();
    NgramHasher::from_constants(RESET, &MULTIPLIERS, &SIZES, &offsets).unwrap()
}

/// Sixteen tokens, several of them the reset token, and their rows in the real table, computed
/// by the reference implementation.
const IDS: [u32; 16] = [
    248045, 846, 198, 9419, 0, 248046, 198, 248044, 248044, 5, 0, 248319, 248044, 77, 248319,
    248319,
];
#[rustfmt::skip]
const ROWS: [[u64; 16]; 16] = [
    [13981229, 30076798, 49239434, 61315716, 98540601, 111186732, 120378863, 146384625,
     173637879, 184336749, 217808755, 222173721, 249579227, 277180543, 299757935, 312970430],
    [4908448, 36872991, 46611251, 64451521, 83649409, 110850044, 122402102, 159207155,
     170314019, 195445770, 214314282, 239389039, 254862662, 271565595, 284073139, 308659387],
    [4582007, 37691206, 44255274, 65455601, 89351473, 103985474, 135938409, 145212418,
     163775156, 199680439, 200044921, 228961047, 240669798, 272736434, 296838250, 317942745],
    [17028438, 28209680, 53967334, 66215064, 85458255, 111908343, 131616820, 144623762,
     166642648, 189439214, 209569116, 233987584, 245802513, 277657279, 294951074, 301485535],
    [14592499, 27474072, 44056930, 79432075, 95615636, 114373837, 132539523, 150146788,
     175263247, 197035019, 215942210, 236706298, 247952508, 279233191, 296334433, 301897189],
    [15625543, 26761500, 46739170, 79646758, 92439279, 104310867, 123000183, 149565551,
     168968993, 184191193, 213901060, 224426623, 243012029, 262642605, 296085271, 305039263],
    [510813, 24677820, 50498865, 70834323, 89294582, 102912024, 124085691, 153712591,
     169124045, 197750334, 219015765, 220969235, 254700956, 269329524, 281071765, 301277638],
    [16849591, 37537304, 42290399, 73883125, 88405327, 114186760, 123740665, 158125394,
     162126929, 190169925, 201084305, 223990392, 248114762, 273201310, 295110750, 306260765],
    [9663979, 26558231, 56120240, 74755659, 80459717, 109265651, 132697467, 151022725,
     170054832, 192967038, 200687722, 225763581, 259275737, 272983544, 297596484, 300986548],
    [15389869, 39778609, 55713969, 62213332, 88817728, 118483999, 133731511, 155458159,
     179763390, 197956758, 205378969, 220499474, 242466248, 265658744, 293662119, 315720898],
    [13145024, 32599802, 42327271, 71945852, 91619004, 111510114, 121346734, 141128949,
     160846507, 193500966, 210082027, 228242113, 258344511, 268806288, 292373602, 310808587],
    [17035305, 37104214, 41553187, 64726037, 94893895, 112558302, 129937787, 148091832,
     160175969, 180528605, 209629593, 224558898, 245859708, 268219992, 295909019, 316118978],
    [16534799, 33485568, 53086604, 65788742, 83561248, 116392302, 125863889, 152246291,
     165617596, 186451838, 205457526, 233578114, 246831837, 260355710, 298257302, 308214073],
    [16611476, 29512305, 49704971, 66165983, 89881645, 105251896, 139055756, 152191225,
     178497739, 192880870, 205859405, 228292887, 258357841, 269648670, 287018169, 315908561],
    [10226631, 36662191, 54293561, 63920650, 93905458, 104841958, 122129422, 146827110,
     170722886, 192128046, 215291111, 236007265, 256797609, 278548691, 299345989, 304932894],
    [3035822, 30922970, 45995374, 64361017, 92705579, 115727959, 130487234, 157254389,
     164130683, 185321959, 218080928, 234087558, 247526728, 261236708, 292533762, 309469265],
];

#[test]
fn the_real_constants() {
    let hasher = real();
    assert_eq!((hasher.heads(), hasher.ngram_size(), hasher.heads_per_ngram()), (16, 3, 8));
    assert_eq!((hasher.context_len(), hasher.reset_token()), (2, RESET));
    let mut out = [0; 16];
    for t in 0..16_usize {
        hasher.rows(&IDS[t.saturating_sub(2)..=t], &mut out).unwrap();
        assert_eq!(out, ROWS[t], "token {t}");
    }
    let mut all = Vec::new();
    hasher.rows_for(&IDS[..5], &IDS[5..], &mut all);
    assert_eq!(all, ROWS[5..].concat());
}

#[test]
fn wrong_windows_and_buffers() {
    let hasher = real();
    for found in [0, 4, 100] {
        let error = hasher.rows(&vec![1; found], &mut [0; 16]).unwrap_err();
        assert!(matches!(error, NgramError::Window { ngram_size: 3, found: f, .. } if f == found));
    }
    for found in [0, 15, 17] {
        let error = hasher.rows(&[1], &mut vec![0; found]).unwrap_err();
        assert!(matches!(error, NgramError::RowIds { heads: 16, found: f, .. } if f == found));
    }
    let mut out = vec![7];
    hasher.rows_for(&[1, 2], &[], &mut out);
    assert!(out.is_empty());
}

#[test]
fn products_wrap_and_remainders_are_floored() {
    // 3 * i64::MAX wraps to i64::MAX - 2; xor with 1 * i64::MIN makes it negative.
    let hasher = NgramHasher::from_constants(9, &[i64::MAX, i64::MIN], &[10], &[0]).unwrap();
    let mut out = [0];
    hasher.rows(&[1, 3], &mut out).unwrap();
    let mixed = (i64::MAX - 2) ^ i64::MIN;
    assert_eq!(mixed, -3);
    assert_eq!(out, [7]);
}

/// Row ids written from the definition: the window is built whole, in 128 bits, then masked.
fn naive(ids: &[u32], t: usize, hasher: &Made) -> Vec<u64> {
    let n = hasher.multipliers.len();
    let mut window = vec![ids[t]];
    for back in 1..n {
        let before = if back <= t { ids[t - back] } else { hasher.reset };
        let ended = window[1..].contains(&hasher.reset);
        window.push(if ended { hasher.reset } else { before });
    }
    let low_64 = |id: u32, m: i64| (i128::from(id) * i128::from(m)) as u64 as i64;
    let mut rows = Vec::new();
    let per_order = hasher.sizes.len() / (n - 1);
    for order in 2..=n {
        let products = window[..order].iter().zip(&hasher.multipliers);
        let mixed = products.fold(0, |x, (&id, &m)| x ^ low_64(id, m));
        for head in (order - 2) * per_order..(order - 1) * per_order {
            let size = i128::from(hasher.sizes[head]);
            let rest = ((i128::from(mixed) % size) + size) % size;
            rows.push(rest as u64 + hasher.offsets[head] as u64);
        }
    }
    rows
}

#[derive(Debug)]
struct Made {
    reset: u32,
    multipliers: Vec<i64>,
    sizes: Vec<i64>,
    offsets: Vec<i64>,
}

fn made() -> impl Strategy<Value = Made> {
    (2_usize..6, 1_usize..4).prop_flat_map(|(n, per_order)| {
        let heads = (n - 1) * per_order;
        let multipliers = prop::collection::vec(any::<i64>(), n);
        let sizes = prop::collection::vec(1_i64..1 << 40, heads);
        let offsets = prop::collection::vec(0_i64..1 << 40, heads);
        (multipliers, sizes, offsets).prop_map(|(multipliers, sizes, offsets)| Made {
            reset: 3,
            multipliers,
            sizes,
            offsets,
        })
    })
}

proptest! {
    #[test]
    fn agrees_with_the_naive_model(
        made in made(),
        // Few distinct tokens, so that every fourth or so is the reset token.
        ids in prop::collection::vec(prop_oneof![0_u32..5, any::<u32>()], 1..40),
        split in 0_usize..40,
    ) {
        let hasher = NgramHasher::from_constants(
            made.reset, &made.multipliers, &made.sizes, &made.offsets,
        ).unwrap();
        let want: Vec<Vec<u64>> = (0..ids.len()).map(|t| naive(&ids, t, &made)).collect();
        let split = split.min(ids.len());
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        hasher.rows_for(&[], &ids[..split], &mut head);
        hasher.rows_for(&ids[..split], &ids[split..], &mut tail);
        prop_assert_eq!([head, tail].concat(), want.concat());
        for (t, want) in want.iter().enumerate() {
            let mut out = vec![0; hasher.heads()];
            hasher.rows(&ids[t.saturating_sub(hasher.context_len())..=t], &mut out).unwrap();
            prop_assert_eq!(&out, want);
        }
    }
}
