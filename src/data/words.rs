//! The words of the generated stories.

pub type Words = &'static [&'static str];
/// Two forms of a word.
pub type Forms = &'static [(&'static str, &'static str)];

#[rustfmt::skip]
pub const WOMEN: Words = &[
    "Anna", "Clara", "Dora", "Ella", "Flora", "Greta", "Hanna", "Ida", "Julia", "Kira", "Lena", "Mara",
    "Nora", "Olga", "Paula", "Rosa", "Sara", "Tessa", "Vera", "Wanda",
];
#[rustfmt::skip]
pub const MEN: Words = &[
    "Adam", "Boris", "Carl", "David", "Emil", "Felix", "Georg", "Hugo", "Ivan", "Jonas", "Karl", "Leo",
    "Martin", "Nils", "Oscar", "Peter", "Robert", "Simon", "Tom", "Viktor",
];
#[rustfmt::skip]
pub const TRADES: Words = &[
    "actor", "artist", "baker", "carpenter", "cook", "doctor", "engineer", "farmer", "fisher", "gardener",
    "guard", "hunter", "inventor", "judge", "librarian", "miller", "miner", "painter", "pilot", "sailor",
    "singer", "smith", "tailor", "teacher",
];
#[rustfmt::skip]
pub const NATURES: Words = &[
    "brave", "calm", "careful", "cheerful", "clever", "curious", "eager", "friendly", "gentle", "honest",
    "kind", "lazy", "lonely", "patient", "poor", "proud", "quiet", "shy", "strong", "wise",
];
#[rustfmt::skip]
pub const PLACES: Words = &[
    "at the edge of the forest", "behind the old mill", "by the sea", "in a small village",
    "in a tall tower", "in the city", "in the mountains", "near the harbor", "near the market",
    "on a green hill", "on an island", "under the bridge", "beside the river", "across the valley",
];
/// Singular and plural.
#[rustfmt::skip]
pub const THINGS: Forms = &[
    ("apple", "apples"), ("basket", "baskets"), ("bell", "bells"), ("boat", "boats"), ("book", "books"),
    ("box", "boxes"), ("candle", "candles"), ("chair", "chairs"), ("clock", "clocks"), ("coin", "coins"),
    ("drum", "drums"), ("egg", "eggs"), ("feather", "feathers"), ("flute", "flutes"), ("hat", "hats"),
    ("key", "keys"), ("knife", "knives"), ("ladder", "ladders"), ("lamp", "lamps"), ("letter", "letters"),
    ("map", "maps"), ("mirror", "mirrors"), ("orange", "oranges"), ("ring", "rings"), ("rope", "ropes"),
    ("shelf", "shelves"), ("stone", "stones"), ("umbrella", "umbrellas"), ("violin", "violins"),
    ("watch", "watches"),
];
#[rustfmt::skip]
pub const LOOKS: Words = &[
    "ancient", "big", "black", "blue", "broken", "clean", "empty", "golden", "green", "heavy", "little",
    "new", "old", "orange", "red", "round", "silver", "strange", "white", "wooden",
];
#[rustfmt::skip]
pub const ANIMALS: Forms = &[
    ("bear", "bears"), ("bird", "birds"), ("cat", "cats"), ("cow", "cows"), ("dog", "dogs"),
    ("duck", "ducks"), ("fox", "foxes"), ("goat", "goats"), ("goose", "geese"), ("horse", "horses"),
    ("mouse", "mice"), ("owl", "owls"), ("sheep", "sheep"), ("wolf", "wolves"),
];
/// Singular and plural of the present.
#[rustfmt::skip]
pub const HABITS: Forms = &[
    ("sleeps", "sleep"), ("sings", "sing"), ("hides", "hide"), ("waits", "wait"), ("plays", "play"),
    ("drinks", "drink"), ("runs", "run"), ("watches the moon", "watch the moon"),
    ("eats grass", "eat grass"), ("stands still", "stand still"),
];
#[rustfmt::skip]
pub const SPOTS: Words = &[
    "behind the door", "below the stairs", "beside the well", "in the attic", "in the barn",
    "in the cellar", "in the garden", "in the kitchen", "near the gate", "on the roof", "on the table",
    "under the bed", "under the tree", "between two rocks",
];
#[rustfmt::skip]
pub const NUMBERS: Words = &[
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
];
#[rustfmt::skip]
pub const TIMES: Words = &[
    "One morning", "One evening", "On a cold night", "On a sunny day", "Early in spring", "Late in autumn",
    "After the storm", "Before sunrise", "Last winter", "A long time ago",
];
/// Of somebody who lost something.
#[rustfmt::skip]
pub const TROUBLES: Words = &[
    "afraid", "angry", "confused", "nervous", "sad", "sick", "silent", "sorry", "tired", "upset", "worried",
];
/// Of somebody who found it again.
#[rustfmt::skip]
pub const JOYS: Words = &[
    "calm", "delighted", "glad", "happy", "merry", "pleased", "proud", "surprised", "thankful",
];
#[rustfmt::skip]
pub const SEARCHES: Words = &[
    "looked for", "searched for", "asked everyone about", "dreamed of", "cried for",
];
#[rustfmt::skip]
pub const ENDS: Words = &[
    "From that day on they were friends.", "Nobody ever forgot that day.", "Then everyone went home.",
    "That night they slept well.", "And that was the end of the trouble.",
    "They laughed about it for many years.",
];
