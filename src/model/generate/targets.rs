//! Generation by an encoder and a decoder: prompts are sources, and what is generated are targets. Every token is computed from
//! all of both anew, without a cache.

use burn::tensor::{Device, Tensor};

use super::{Chooser, NotNumbers, Request};
use crate::device::integers;
use crate::model::language::{Cache, Decoder, SourceTokens, Tokens};
use crate::ops::attention::Mask;
use crate::ops::embedding::Ids;

/// As [`generate`](super::generate), from the token `start`. A source ends with the first of the request's ends.
pub fn generate(
    network: &Decoder,
    (prompts, start): (&[Vec<u32>], u32),
    request: &Request,
    stops: &dyn Fn(&[u32]) -> bool,
    device: &Device,
) -> Result<Vec<Vec<u32>>, NotNumbers> {
    let end = request.ends.first();
    let ended = |prompt: &Vec<u32>| {
        let missing = end.filter(|end| prompt.last() != Some(end));
        prompt.iter().chain(missing).copied().collect::<Vec<u32>>()
    };
    let sources: Vec<Vec<u32>> = prompts.iter().map(ended).collect();
    let mut targets = vec![vec![start]; prompts.len()];
    let mut ends: Vec<Option<usize>> = vec![None; prompts.len()];
    let mut chooser = Chooser::new(request.choice);
    for step in 0..request.tokens {
        let tokens = tokens(&sources, &targets, device);
        // Without room for a token: nothing is cached, and nothing is kept for backward.
        let mut cache = Cache::new(network.layers(), prompts.len(), 0);
        let hidden = network.hidden(&tokens, Some(&mut cache));
        let last = (1..=prompts.len()).map(|b| (b * tokens.sequence - 1) as i32).collect();
        let logits = network.logits(hidden.inner().select(0, integers(last, device)));
        if step == 0 && !logits.clone().sum().into_scalar::<f32>().is_finite() {
            return Err(NotNumbers);
        }
        for ((next, target), ended) in chooser.choose(logits).into_iter().zip(&mut targets).zip(&mut ends) {
            target.push(next);
            if ended.is_none() && (request.ends.contains(&next) || stops(&target[1..])) {
                *ended = Some(target.len());
            }
        }
        if ends.iter().all(Option::is_some) {
            break;
        }
    }
    let whole = |((prompt, target), end): ((&Vec<u32>, &Vec<u32>), Option<usize>)| {
        [&prompt[..], &target[1..end.unwrap_or(target.len())]].concat()
    };
    Ok(prompts.iter().zip(&targets).zip(ends).map(whole).collect())
}

/// Sources that are filled up behind their ends, and targets of equal length.
fn tokens(sources: &[Vec<u32>], targets: &[Vec<u32>], device: &Device) -> Tokens {
    let (batch, longest) = (sources.len(), sources.iter().map(Vec::len).max().unwrap_or(0));
    let filled = |source: &Vec<u32>| {
        let padding = std::iter::repeat_n(0, longest - source.len());
        source.iter().map(|id| *id as i32).chain(padding).collect::<Vec<_>>()
    };
    let sequence = targets[0].len();
    let own = targets.iter().flatten().map(|id| *id as i32);
    let ids = sources.iter().flat_map(filled).chain(own).collect();
    let positions =
        [longest, sequence].into_iter().flat_map(|length| (0..batch).flat_map(move |_| 0..length as i32));
    let marks = sources.iter().flat_map(|source| (0..longest).map(|place| i32::from(place >= source.len())));
    let padding = sources.iter().any(|source| source.len() < longest).then(|| {
        let marks: Tensor<2, _> = integers(marks.collect(), device).reshape([batch, longest]);
        marks.equal_elem(1)
    });
    Tokens {
        ids: Ids::new(ids, device),
        positions: Ids::new(positions.collect(), device),
        source: Some(SourceTokens { sequence: longest, padding }),
        batch,
        sequence,
        mask: Mask::default(),
        virtual_rows: None,
    }
}
