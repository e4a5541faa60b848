//! What holds for every sampler, and for each of them.

use rand::{Rng, SeedableRng};

use super::*;

const SEED: u64 = 3;
const MAX_LENGTH: usize = 100;

fn lengths(samples: usize) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    (0..samples).map(|_| rng.random_range(2..=MAX_LENGTH as u32)).collect()
}

fn plan(config: SamplerConfig, samples: usize) -> SamplingPlan {
    SamplingPlan {
        config,
        lengths: Arc::new(lengths(samples)),
        batch_size: 8,
        max_length: MAX_LENGTH,
        seed: SEED,
    }
}

fn balanced(k: usize) -> SamplerConfig {
    SamplerConfig::of(Sampler::Balanced(Balanced { k }))
}

fn packed(last_sample: LastSample) -> SamplerConfig {
    SamplerConfig::of(Sampler::Packed(Packed { last_sample }))
}

/// Those that keep samples.
fn samplers() -> Vec<SamplerConfig> {
    vec![
        SamplerConfig::of(Sampler::Padded(Padded {})),
        SamplerConfig::of(Sampler::Standard(Standard {})),
        balanced(25),
        balanced(10),
        packed(LastSample::Cut),
        packed(LastSample::Drop),
    ]
}

/// Every sampler with both values of its options, where it has them.
fn plans(samples: usize) -> impl Iterator<Item = SamplingPlan> {
    samplers().into_iter().flat_map(move |config| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(longest_first, drop_last)| {
            plan(SamplerConfig { longest_first, drop_last, ..config }, samples)
        })
    })
}

/// The draws of one epoch.
fn epoch(draws: &mut Draws) -> Vec<Draw> {
    let mut epoch = Vec::new();
    loop {
        let draw = draws.next().expect("an epoch has batches");
        epoch.push(draw);
        if epoch.last().is_some_and(|draw| draw.next.begins_epoch()) {
            return epoch;
        }
    }
}

fn sizes(plan: &SamplingPlan, draw: &Draw) -> Vec<u32> {
    draw.samples.iter().map(|i| plan.lengths[*i as usize]).collect()
}

#[test]
fn an_epoch_has_every_sample_once_but_those_it_counts() {
    for plan in plans(203) {
        let mut draws = Draws::new(plan.clone(), Position::default());
        let epochs = [epoch(&mut draws), epoch(&mut draws)];
        assert_ne!(epochs[0], epochs[1], "each epoch has an order of its own");
        for draws in epochs {
            let mut seen: Vec<u32> = draws.iter().flat_map(|draw| draw.samples.clone()).collect();
            let dropped: usize = draws.iter().map(|draw| draw.dropped).sum();
            seen.sort_unstable();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "no sample twice: {:?}", plan.config);
            assert_eq!(seen.len() + dropped, 203, "{:?}", plan.config);
            let may_drop = plan.config.drop_last
                || plan.config.sampler == Sampler::Packed(Packed { last_sample: LastSample::Drop });
            assert_eq!(dropped > 0, may_drop, "{:?}", plan.config);
        }
    }
}

/// As many steps as draws in threes, which no step takes from two epochs.
#[test]
fn the_steps_of_epochs_follow_from_the_samples() {
    for plan in plans(203) {
        for accumulation_steps in [1, 3] {
            let mut draws = Draws::new(plan.clone(), Position::default());
            let mut steps = 0;
            while draws.next.epoch < 2 {
                for _ in 0..accumulation_steps {
                    if draws.next().expect("an epoch has batches").next.begins_epoch() {
                        break;
                    }
                }
                steps += 1;
            }
            assert_eq!(plan.steps(2, accumulation_steps), steps, "{:?}", plan.config);
        }
    }
}

#[test]
fn a_seed_gives_one_order_and_resuming_continues_it() {
    for plan in plans(90) {
        let mut whole = Draws::new(plan.clone(), Position::default());
        let mut other = Draws::new(SamplingPlan { seed: SEED + 1, ..plan.clone() }, Position::default());
        assert_ne!(epoch(&mut whole), epoch(&mut other), "{:?}", plan.config);
        let mut whole = Draws::new(plan.clone(), Position::default());
        let start = whole.by_ref().take(9).last().unwrap().next;
        let mut resumed = Draws::new(plan.clone(), start);
        for _ in 0..40 {
            assert_eq!(whole.next(), resumed.next(), "{:?}", plan.config);
        }
    }
}

/// Eight samples fill a batch only where the bounds of this epoch's buckets part none of them from the others.
#[test]
fn an_epoch_without_a_batch_is_passed_over_and_its_samples_are_counted() {
    let lengths = Arc::new([10, 11].repeat(4));
    let config = SamplerConfig { drop_last: true, ..balanced(1) };
    let plan = SamplingPlan { lengths, ..plan(config, 0) };
    let filled: Vec<u64> = (0..60).filter(|number| plan.epoch(*number).count() > 0).collect();
    assert!(filled.len() > 10 && filled.len() < 50 && filled[..10] != Vec::from_iter(0..10));
    let draws: Vec<Draw> = Draws::new(plan.clone(), Position::default()).take(10).collect();
    for (n, draw) in draws.iter().enumerate() {
        assert_eq!(draw.next, Position::of_epoch(filled[n + 1]));
        assert!(Draws::new(plan.clone(), draw.next).take(9 - n).eq(draws[n + 1..].iter().cloned()));
    }
    let dropped: usize = draws.iter().map(|draw| draw.dropped).sum();
    assert_eq!(dropped as u64, 8 * (filled[10] - 10), "{filled:?}");
    // A batch of nine has none in any epoch.
    assert_eq!(Draws::new(SamplingPlan { batch_size: 9, ..plan }, Position::default()).next(), None);
}

#[test]
fn balanced_batches_are_of_similar_length_and_random() {
    for k in [0, 7, 30] {
        let plan = plan(balanced(k), 1000);
        let epoch = epoch(&mut Draws::new(plan.clone(), Position::default()));
        for draw in &epoch {
            let sizes = sizes(&plan, draw);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!((most - least) as usize <= k && sizes.len() <= 8, "{sizes:?}");
        }
        // Short batches end their buckets: one each at most.
        let short = epoch.iter().filter(|draw| draw.samples.len() < 8).count();
        assert!(short > 0 && short <= MAX_LENGTH / (k + 1) + 2, "{short} at k = {k}");
        let firsts: Vec<u32> = epoch.iter().map(|draw| sizes(&plan, draw)[0]).collect();
        assert!(!firsts.is_sorted() && !firsts.is_sorted_by(|a, b| a >= b), "batches are in random order");
    }
}

#[test]
fn packed_sequences_are_full_but_the_last() {
    for last_sample in [LastSample::Cut, LastSample::Drop] {
        let plan = plan(packed(last_sample), 400);
        let epoch = epoch(&mut Draws::new(plan.clone(), Position::default()));
        let capacity = 8 * MAX_LENGTH as u32;
        for draw in &epoch[..epoch.len() - 1] {
            let sizes = sizes(&plan, draw);
            let (all, last) = (sizes.iter().sum::<u32>(), *sizes.last().unwrap());
            match last_sample {
                LastSample::Cut => assert!(all >= capacity && all - last < capacity, "{sizes:?}"),
                LastSample::Drop => {
                    assert!(all <= capacity && all > capacity - MAX_LENGTH as u32, "{sizes:?}")
                }
            }
        }
    }
}

#[test]
fn the_largest_batch_comes_first_where_that_is_asked_for() {
    for config in [SamplerConfig::of(Sampler::Standard(Standard {})), balanced(10)] {
        let plan = plan(SamplerConfig { longest_first: true, ..config }, 500);
        let size = |samples: &[u32]| {
            samples.len() as u32 * samples.iter().map(|i| plan.lengths[*i as usize]).max().unwrap_or(0)
        };
        let epoch = epoch(&mut Draws::new(plan.clone(), Position::default()));
        let all: Vec<u32> = epoch.iter().map(|draw| size(&draw.samples)).collect();
        assert_eq!(all.iter().max(), all.first(), "{all:?}");
        assert!(size(&plan.largest()) >= all[0], "{config:?}");
    }
}

#[test]
fn the_largest_batch_is_one_that_the_sampler_could_draw() {
    for config in samplers() {
        let plan = plan(config, 500);
        let draw = Draw { samples: plan.largest(), dropped: 0, next: Position::default() };
        let sizes = sizes(&plan, &draw);
        match (config.sampler, config.sampler.rows()) {
            (Sampler::Balanced(Balanced { k }), _) => {
                assert!((sizes.iter().max().unwrap() - sizes.iter().min().unwrap()) as usize <= k)
            }
            (_, Rows::Packed) => assert!(sizes.iter().sum::<u32>() >= 8 * MAX_LENGTH as u32),
            _ => assert_eq!(sizes.len(), 8),
        }
    }
}

/// Twice the samples are twice the work of construction, and a draw costs the same: one for the bucket
/// and one for each of its samples.
#[test]
fn balanced_construction_is_linear_and_a_draw_does_not_see_the_data_set() {
    let sampler = |samples: usize, batch_size: usize| {
        let rng = ChaCha8Rng::seed_from_u64(SEED);
        BalancedBatchSampler::new(lengths(samples).into_iter(), batch_size, 9, false, rng)
    };
    let construction = |samples| sampler(samples, 16).operations() as f64 / samples as f64;
    let (small, large) = (construction(2_000), construction(200_000));
    assert!((1.0..1.2).contains(&large) && large <= small, "{small} and {large} operations a sample");
    let draws = |samples: usize, batch_size: usize| {
        let mut sampler = sampler(samples, batch_size);
        let before = sampler.operations();
        let drawn: usize = (0..50).map(|_| sampler.next().unwrap().len()).sum();
        (sampler.operations() - before, drawn as u64)
    };
    for samples in [2_000, 200_000] {
        let (operations, drawn) = draws(samples, 16);
        assert_eq!(operations, 50 + drawn);
    }
    let ((narrow, _), (wide, _)) = (draws(200_000, 16), draws(200_000, 64));
    assert_eq!((narrow - 50) * 4, wide - 50, "linear in the batch");
}
