//! Attention over keys of any sequence against its definition in f64.

use burn::tensor::{Device, TensorData};

use super::*;
use crate::ops::attention::Scores;
use crate::ops::attention::relative::Buckets;
use crate::ops::product::Fp32Math;
use crate::ops::testing::{assert_close, random};

fn list<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Distances that share twelve buckets.
fn buckets(bidirectional: bool) -> Buckets {
    Buckets { count: 12, max_distance: 60, bidirectional }
}

/// o and the gradients of q, k, v and the bias's table, from these and the gradient of o.
fn definition(cross: &CrossHeads, padding: &[bool], [q, k, v, table, g]: [&[f64]; 5]) -> [Vec<f64>; 5] {
    let Heads { batch, sequence, kv_heads, group, head_dim: d, .. } = cross.heads;
    let (keys, scale, heads) = (cross.keys, cross.heads.scale(), kv_heads * group);
    let [mut o, mut dq, mut dk, mut dv, mut db] = [q, q, k, v, table].map(|x| vec![0.0; x.len()]);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for (b, head, i) in
        (0..batch).flat_map(|b| (0..heads).flat_map(move |head| (0..sequence).map(move |i| (b, head, i))))
    {
        let query = ((b * sequence + i) * heads + head) * d;
        let key = |j: usize| ((b * keys + j) * kv_heads + head / group) * d;
        let after = |j: usize| (j + sequence) as i64 - (keys + i) as i64;
        let at = |j: usize| buckets(!cross.causal).of_distance(after(j)) * heads + head;
        let seen = |j: usize| !(padding[b * keys + j] || cross.causal && j + sequence > keys + i);
        let seen: Vec<usize> = (0..keys).filter(|j| seen(*j)).collect();
        let (q, g) = (&q[query..][..d], &g[query..][..d]);
        let exps: Vec<f64> =
            seen.iter().map(|j| (scale * dot(q, &k[key(*j)..][..d]) + table[at(*j)]).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let dp: Vec<f64> = seen.iter().map(|j| dot(g, &v[key(*j)..][..d])).collect();
        let mean = dot(&exps, &dp) / sum;
        for ((j, e), dp) in seen.iter().zip(&exps).zip(&dp) {
            let ds = e / sum * (dp - mean);
            db[at(*j)] += ds;
            for c in 0..d {
                o[query + c] += e / sum * v[key(*j) + c];
                dv[key(*j) + c] += e / sum * g[c];
                dq[query + c] += scale * ds * k[key(*j) + c];
                dk[key(*j) + c] += scale * ds * q[c];
            }
        }
    }
    [o, dq, dk, dv, db]
}

/// An encoder, a decoder, one with keys before its queries, and one over an encoder whose keys are fewer or more.
#[test]
fn both_ways_equal_the_definition() {
    let (kv_heads, group, head_dim) = (2, 2, 5);
    for (queries, keys, causal) in
        [(37, 37, false), (37, 37, true), (5, 37, true), (300, 13, false), (1, 29, false)]
    {
        for (scale, biased, padded) in [(Some(1.0), true, true), (None, false, true), (None, true, false)] {
            let scores = Scores { scale, ..Scores::default() };
            let heads = Heads { batch: 3, sequence: queries, kv_heads, group, head_dim, scores };
            // The first key is there for every query.
            let padding: Vec<bool> =
                (0..3 * keys).map(|i| padded && i % keys > keys / 2 + i / keys).collect();
            let mask = || Tensor::from_data(TensorData::new(padding.clone(), [3, keys]), &Device::flex());
            let cross = CrossHeads { heads, keys, causal, padding: padded.then(mask) };
            let (wide, slim) = (heads.columns(), heads.of_keys().columns());
            let data =
                [(3 * queries, wide, 1), (3 * keys, slim, 2), (3 * keys, slim, 3), (3 * queries, wide, 4)];
            let [q, k, v, g] = data.map(|(rows, columns, seed)| random([rows, columns], seed));
            let buckets = buckets(!causal);
            let table: Tensor<2> = random([buckets.count, kv_heads * group], 5);
            let pairs = || buckets.of_pairs(&buckets.table(&Device::flex()), queries, keys);
            let used = if biased { table.clone() } else { table.clone() * 0.0 };
            let exact = [&q, &k, &v].map(|x| list(x.clone().inner()));
            let (of_table, of_g) = (list(used.inner()), list(g.clone().inner()));
            let exact = definition(&cross, &padding, [&exact[0], &exact[1], &exact[2], &of_table, &of_g]);
            for (way, dtype, allowed) in [
                (Way::Blocks, DType::F32, 1e-5),
                (Way::Plain, DType::F32, 1e-5),
                (Way::Blocks, DType::F16, 1e-2),
            ] {
                let [q, k, v] = [&q, &k, &v].map(|x| x.clone().require_grad());
                let table = table.clone().require_grad();
                let bias = biased.then(|| RelativeBias { table: table.clone(), buckets: pairs() });
                let arithmetic = Arithmetic { dtype, math: Fp32Math::Exact };
                let qkv = [q.clone(), k.clone(), v.clone()];
                let o = cross_attention(qkv, bias, &cross, arithmetic, way);
                let gradients = (narrow(o.clone(), DType::F32) * g.clone()).sum().backward();
                println!(
                    "{queries} over {keys}, causal {causal}, {scale:?} {biased} {padded}, {way:?} {dtype:?}"
                );
                assert_close(&list(o.inner()), &exact[0], allowed);
                for (x, exact) in [q, k, v].iter().zip(&exact[1..]) {
                    assert_close(&list(x.grad(&gradients).expect("a gradient")), exact, allowed);
                }
                if biased {
                    assert_close(&list(table.grad(&gradients).expect("a gradient")), &exact[4], allowed);
                }
            }
        }
    }
}
