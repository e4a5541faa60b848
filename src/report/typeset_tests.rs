//! Where a PDF has its texts and figures.

use typst::layout::{Abs, Frame, FrameItem};

use super::*;

/// Every text and picture of a frame with its height on the page.
fn placed(frame: &Frame, above: Abs, out: &mut Vec<(Abs, String)>) {
    for (at, item) in frame.items() {
        let y = above + at.y;
        match item {
            FrameItem::Group(group) => placed(&group.frame, y, out),
            FrameItem::Text(text) => out.push((y, text.text.to_string())),
            FrameItem::Image(..) => out.push((y, "picture".into())),
            _ => {}
        }
    }
}

/// A figure after little text moves to the top of its page.
#[test]
fn a_question_and_its_answer_stand_above_every_figure() {
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"180\"><rect width=\"9\" height=\"9\"/></svg>";
    let figure = || {
        let (name, caption) = ("time".into(), "Time of one step.".into());
        Element::Figure(Chart { name, caption, svg: svg.into() })
    };
    let document = Document {
        title: "Levels".into(),
        date: String::new(),
        measured: "A device".into(),
        elements: vec![
            Element::paragraph("Questioned?"),
            Element::Summary { items: vec!["Answered.".into()] },
            Element::heading("Findings"),
            figure(),
            figure(),
        ],
        details: Vec::new(),
    };
    let pages = set(&document, Look::USUAL).expect("a document");
    let mut found = Vec::new();
    placed(&pages.pages()[0].frame, Abs::zero(), &mut found);
    found.sort_by_key(|(y, _)| *y);
    let order: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    let place =
        |text: &str| order.iter().position(|of| *of == text).unwrap_or_else(|| panic!("{text}: {order:?}"));
    assert!(place("Questioned?") < place("Answered.") && place("Answered.") < place("picture"), "{order:?}");
}

/// A page of lines and one more, and two thirds of a page more.
#[test]
fn no_page_is_a_third_empty_where_another_look_fills_it() {
    let lines = |count: usize| Document {
        title: "Levels".into(),
        date: String::new(),
        measured: "A device".into(),
        elements: std::iter::once(Element::heading("Findings"))
            .chain((0..count).map(|i| Element::paragraph(format!("Line {i}."))))
            .collect(),
        details: Vec::new(),
    };
    let set = |count: usize| set(&lines(count), Look::USUAL).expect("a document");
    let one_page = (20..200).find(|&count| set(count).pages().len() > 1).expect("a second page") - 1;
    for (more, pages) in [(1, 1), (2 * one_page / 3, 2)] {
        let usual = set(one_page + more);
        assert_eq!(usual.pages().len(), 2);
        let empty = most_empty(&usual);
        assert!(empty > EMPTY, "{empty}");
        let filled = fill(&lines(one_page + more), usual).expect("a document");
        assert_eq!(filled.pages().len(), pages);
        assert!(most_empty(&filled) < EMPTY);
    }
}
