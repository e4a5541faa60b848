//! [`Look`]: margins and sizes of a PDF, and [`most_empty`]: how much of a page is left empty with them.

use serde::Serialize;
use typst::layout::{Abs, Frame, FrameItem};
use typst_layout::PagedDocument;

/// What the template takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Look {
    /// Above and below the text of a page, mm.
    pub margin: f64,
    /// Of text, pt.
    pub size: f64,
    /// Width of pictures, as a part of the largest that fits.
    pub picture: f64,
}

const fn look(margin: f64, size: f64) -> Look {
    Look { margin, size, picture: 1.0 }
}

impl Look {
    /// Closer looks take a few lines of a last page, wider ones fill it.
    pub const ALL: [Self; 6] = [
        Self::USUAL,
        look(17.0, 10.0),
        look(27.0, 11.0),
        look(24.0, 10.5),
        look(15.0, 10.0),
        look(22.0, 10.5),
    ];
    pub const USUAL: Self = look(20.0, 10.5);

    /// With smaller and smaller pictures.
    pub fn shrinking(self) -> impl Iterator<Item = Self> {
        [1.0, 0.96, 0.92, 0.88, 0.84, 0.8].into_iter().map(move |picture| Self { picture, ..self })
    }
}

/// What separates things on a page is less than this part of its height; 10 mm.
const SPACING: f64 = 0.04;

/// The part of a page's height, without the usual margins, in which nothing stands; of the emptiest page.
pub fn most_empty(document: &PagedDocument) -> f64 {
    let margin = Abs::mm(Look::USUAL.margin);
    let pages = document.pages().iter().map(|page| {
        let (top, bottom) = (margin, page.frame.height() - margin);
        let mut spans = vec![(bottom, bottom)];
        add_spans(&page.frame, Abs::zero(), &mut spans);
        spans.retain(|(from, to)| *to > top && *from <= bottom);
        spans.sort();
        let mut reached = top;
        let gaps = spans.into_iter().map(|(from, to)| {
            let gap = (from - reached) / (bottom - top);
            reached.set_max(to);
            gap
        });
        gaps.filter(|gap| *gap > SPACING).sum()
    });
    pages.fold(0.0, f64::max)
}

/// From where to where on the page each thing in a frame reaches.
fn add_spans(frame: &Frame, above: Abs, spans: &mut Vec<(Abs, Abs)>) {
    for (at, item) in frame.items() {
        let y = above + at.y;
        match item {
            FrameItem::Group(group) => add_spans(&group.frame, y, spans),
            // Placed by its baseline.
            FrameItem::Text(text) => spans.push((y - text.size, y)),
            FrameItem::Shape(shape, _) => {
                let bounds = shape.bbox(false);
                spans.push((y + bounds.min.y, y + bounds.max.y));
            }
            FrameItem::Image(_, size, _) => spans.push((y, y + size.y)),
            FrameItem::Link(..) | FrameItem::Tag(_) => {}
        }
    }
}
