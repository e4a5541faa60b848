//! Samples: where they end, what is cut of them, and what is given.

use super::*;

#[test]
fn blocks_are_texts_joined_and_the_rest_is_dropped() {
    let texts = ["abc", "", "de"].map(String::from);
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    let end = tokenizer.end_of_text().unwrap();
    let id = |letter: &str| tokenizer.encode(letter).unwrap()[0];
    let blocks = Samples::joined(&texts, &tokenizer, 4).unwrap();
    assert_eq!(blocks.lengths(), [4, 4]);
    assert_eq!(blocks.get(0).unwrap().tokens.as_ref(), [id("a"), id("b"), id("c"), end]);
    assert_eq!(blocks.get(1).unwrap().tokens.as_ref(), [end, id("d"), id("e"), end]);
    assert_eq!(Samples::joined(&texts, &tokenizer, 5).unwrap().lengths(), [5]);
    let message = Samples::blocks(vec![1, 2, 3], 4).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("has 3 tokens, less than one sequence of 4"), "{message}");
}

#[test]
fn samples_are_the_same_whenever_they_are_tokenised() {
    let texts: Vec<String> = (1..30).map(|n| "a fox ".repeat(n)).collect();
    let tokenizer = Tokenizer::train(&texts, 260).unwrap();
    let samples = |tokenize| Samples::new(texts.clone(), &tokenizer, 12, tokenize).unwrap();
    let (once, late) = (samples(Tokenize::Once), samples(Tokenize::EveryStep));
    // What plans the batches, and with them their widths and their memory.
    assert_eq!(once.lengths(), late.lengths());
    let (mut longest, mut cut) = (0, 0);
    for (i, length) in once.lengths().into_iter().enumerate() {
        let (a, b) = (once.get(i).unwrap(), late.get(i).unwrap());
        assert_eq!((a.tokens.as_ref(), a.cut), (b.tokens.as_ref(), b.cut));
        assert_eq!(a.tokens.len(), length as usize);
        let whole = tokenizer.encode(&texts[i]).unwrap();
        assert_eq!(a.tokens.len() + a.cut, whole.len() + 1, "with its end-of-text token");
        longest = longest.max(a.tokens.len());
        cut += a.cut;
    }
    assert!(longest == 12 && cut > 0, "{longest} {cut}");
    assert!(Samples::new(Vec::new(), &tokenizer, 12, Tokenize::Once).is_err());
}

#[test]
fn a_prompt_is_given_and_must_leave_something_to_learn() {
    let text = |prompt: &str| Prompted { prompt: prompt.into(), completion: "de".into() };
    let tokenizer = Tokenizer::train(&[], 257).unwrap();
    for tokenize in [Tokenize::Once, Tokenize::EveryStep] {
        let samples =
            Samples::prompted(["abc", "a", "abcd"].map(text).to_vec(), &tokenizer, 5, tokenize).unwrap();
        // The end token is what the last token of a whole sample predicts.
        assert_eq!(samples.lengths(), [5, 3, 5]);
        let [first, second, third] = [0, 1, 2].map(|i| samples.get(i).unwrap());
        assert_eq!((first.prompt, first.cut, first.last_label), (3, 0, tokenizer.eos()));
        assert_eq!((second.prompt, second.cut, second.last_label), (1, 0, tokenizer.eos()));
        assert_eq!(second.tokens[1..], first.tokens[3..]);
        assert_eq!((third.tokens.len(), third.cut, third.last_label), (5, 1, None));
    }
    let message =
        Samples::prompted(vec![text("abcde")], &tokenizer, 5, Tokenize::Once).err().unwrap().to_string();
    assert!(message.contains("the prompt \"abcde\" has 5 tokens, and train.seq_len = 5 leaves"), "{message}");
}
