use super::*;

fn numbers(count: usize, seed: f32) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + seed) * 0.737).sin()).collect()
}

/// o, or dq, dk and dv, of one head in f64 by the definition.
struct Exact {
    o: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
}

fn exact([q, k, v, g]: [&[f64]; 4], shape: &Shape, sees: &dyn Fn(usize, usize) -> bool) -> Exact {
    let Shape { head_dim: d, scores: Scores { scale, soft_cap, window }, .. } = *shape;
    let (queries, keys) = (q.len() / d, k.len() / d);
    let past = keys - queries;
    let scale = scale.unwrap_or(1.0 / (d as f64).sqrt());
    // A score and its slope.
    let score = |z: f64| match soft_cap {
        None => (scale * z, scale),
        Some(cap) => {
            let t = (scale * z / cap).tanh();
            (cap * t, scale * (1.0 - t * t))
        }
    };
    let mut found = Exact {
        o: vec![0.0; q.len()],
        dq: vec![0.0; q.len()],
        dk: vec![0.0; k.len()],
        dv: vec![0.0; k.len()],
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for t in 0..queries {
        let row = t * d..(t + 1) * d;
        let is_near = |s: usize| window.is_none_or(|window| s + window > past + t);
        let visible: Vec<usize> =
            (0..keys).filter(|s| *s <= past + t && is_near(*s) && sees(past + t, *s)).collect();
        let scores: Vec<(f64, f64)> =
            visible.iter().map(|s| score(dot(&q[row.clone()], &k[s * d..(s + 1) * d]))).collect();
        let e: Vec<f64> = scores.iter().map(|(z, _)| z.exp()).collect();
        let sum: f64 = e.iter().sum();
        let p: Vec<f64> = e.iter().map(|e| e / sum).collect();
        let dp: Vec<f64> = visible.iter().map(|s| dot(&g[row.clone()], &v[s * d..(s + 1) * d])).collect();
        let mean = dot(&p, &dp);
        for (((s, p), dp), (_, slope)) in visible.iter().zip(&p).zip(&dp).zip(&scores) {
            let ds = p * (dp - mean) * slope;
            for j in 0..d {
                found.o[t * d + j] += p * v[s * d + j];
                found.dv[s * d + j] += p * g[t * d + j];
                found.dq[t * d + j] += ds * k[s * d + j];
                found.dk[s * d + j] += ds * q[t * d + j];
            }
        }
    }
    found
}

/// Each option alone, and all together.
const SCORES: [Scores; 6] = [
    Scores { scale: None, soft_cap: None, window: None },
    Scores { scale: Some(0.8), soft_cap: None, window: None },
    Scores { scale: None, soft_cap: Some(0.7), window: None },
    Scores { scale: None, soft_cap: None, window: Some(1) },
    Scores { scale: None, soft_cap: None, window: Some(13) },
    Scores { scale: Some(0.3), soft_cap: Some(1.5), window: Some(75) },
];

#[test]
fn attention_and_its_gradients_equal_the_definition_in_f64() {
    for scores in SCORES {
        for (lengths, kv_heads, group, d, segmented) in [
            (&[130, 130][..], 2, 1, 16, false),
            (&[50], 3, 3, 8, false),
            (&[61, 3, 250], 1, 2, 5, true),
            (&[1], 1, 1, 4, false),
        ] {
            let shape = Shape { kv_heads, group, head_dim: d, scores };
            check(&shape, lengths, segmented);
        }
    }
}

/// Queries, keys and values side by side in one matrix, with a token a row.
fn check(shape: &Shape, lengths: &[usize], segmented: bool) {
    let Shape { kv_heads, group, head_dim: d, .. } = *shape;
    let mut sequences = Vec::new();
    let mut tokens = 0;
    for length in lengths {
        let range = tokens..tokens + length;
        sequences.push(Sequence { queries: range.clone(), keys: range });
        tokens += length;
    }
    let heads = kv_heads * group;
    let columns = (heads + 2 * kv_heads) * d;
    let x = numbers(tokens * columns, 0.0);
    let gradient = numbers(tokens * heads * d, 0.5);
    let of_q = Strides { token: columns, kv_head: group * d, head: d };
    let of_k = Strides { kv_head: d, head: 0, ..of_q };
    let of_o = Strides { token: heads * d, ..of_q };
    let places = [(0, of_q), (heads * d, of_k), ((heads + kv_heads) * d, of_k)];
    let [q, k, v] = places.map(|(first, strides)| Heads { data: &x[first..], strides });
    let g = Heads { data: &gradient, strides: of_o };
    let segments: Option<Vec<i64>> = segmented.then(|| (0..tokens).map(|i| (i / 20) as i64).collect());
    let mut o = vec![f32::NAN; gradient.len()];
    let mut dx = vec![f32::NAN; x.len()];
    let mut lse = vec![f32::NAN; heads * tokens];
    // SAFETY: nothing else uses them.
    unsafe {
        let outputs =
            [HeadsOut::new(&mut *o, 0, of_o), HeadsOut::new(&mut *lse, 0, statistics(shape, tokens))];
        attend(*shape, &sequences, [q, k, v], segments.as_deref(), outputs.each_ref());
        let all = &raw mut *dx;
        let outputs = places.map(|(first, strides)| HeadsOut::new(all, first, strides));
        attend_backward(*shape, &sequences, [q, k, v, g], segments.as_deref(), &lse, outputs.each_ref());
    }
    let near = |ours: &[f64], exact: &[f64], name: &str| {
        for (ours, exact) in ours.iter().zip(exact) {
            assert!((ours - exact).abs() < 2e-5, "{name} of {shape:?}: {ours} {exact}");
        }
    };
    for (sequence, kv) in sequences.iter().flat_map(|s| (0..kv_heads).map(move |kv| (s, kv))) {
        let list = |data: &[f32], strides: Strides, of: [usize; 2]| -> Vec<f64> {
            let token = |t| (0..d).map(move |j| (t, j));
            let at = |(t, j): (usize, usize)| f64::from(data[strides.first(of, t) + j]);
            sequence.keys.clone().flat_map(token).map(at).collect()
        };
        let first = sequence.keys.start;
        let sees = |t: usize, s: usize| segments.as_ref().is_none_or(|n| n[first + t] == n[first + s]);
        let (mut dk, mut dv) = (vec![0.0; sequence.keys.len() * d], vec![0.0; sequence.keys.len() * d]);
        for head in 0..group {
            let of = [kv, head];
            let [kd, vd] = [k, v].map(|heads| list(heads.data, of_k, [kv, 0]));
            let (qd, gd) = (list(&x, of_q, of), list(&gradient, of_o, of));
            let found = exact([&qd, &kd, &vd, &gd], shape, &sees);
            near(&list(&o, of_o, of), &found.o, "o");
            near(&list(&dx, of_q, of), &found.dq, "dq");
            dk.iter_mut().zip(found.dk).for_each(|(sum, x)| *sum += x);
            dv.iter_mut().zip(found.dv).for_each(|(sum, x)| *sum += x);
        }
        near(&list(&dx[heads * d..], of_k, [kv, 0]), &dk, "dk");
        near(&list(&dx[(heads + kv_heads) * d..], of_k, [kv, 0]), &dv, "dv");
    }
}

/// A few new queries after keys that are there already.
#[test]
fn queries_after_others_see_all_before_them() {
    let (d, keys) = (8, 190);
    for (queries, scores) in
        [1, 7, 8, 60].into_iter().flat_map(|queries| SCORES.map(|scores| (queries, scores)))
    {
        let shape = Shape { kv_heads: 1, group: 1, head_dim: d, scores };
        let (q, k, v) = (numbers(queries * d, 0.0), numbers(keys * d, 0.3), numbers(keys * d, 0.6));
        let strides = Strides { token: d, kv_head: 0, head: 0 };
        let (mut o, mut lse) = (vec![f32::NAN; q.len()], vec![0.0; queries]);
        let heads = [&q, &k, &v].map(|data| Heads { data, strides });
        let sequence = Sequence { queries: 0..queries, keys: 0..keys };
        // SAFETY: nothing else uses them.
        let outputs = unsafe {
            [HeadsOut::new(&mut *o, 0, strides), HeadsOut::new(&mut *lse, 0, statistics(&shape, queries))]
        };
        attend(shape, &[sequence], heads, None, outputs.each_ref());
        let [qd, kd, vd] = [&q, &k, &v].map(|x| x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        let found = exact([&qd, &kd, &vd, &qd], &shape, &|_, _| true);
        for (ours, exact) in o.iter().zip(found.o) {
            assert!((f64::from(*ours) - exact).abs() < 1e-5, "{ours} {exact}");
        }
    }
}
