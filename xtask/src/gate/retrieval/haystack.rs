//! Haystacks: sentences that say nothing, in an order that a seed decides, and one that does.

use crate::fixture::rng::Stream;

/// One haystack with its needle.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Words of the haystack, at least.
    pub words: usize,
    /// Where the needle lies, as a fraction of the sentences.
    pub depth: f64,
    /// The number that is asked for.
    pub needle: String,
    /// Haystack and question.
    pub prompt: String,
}

const SUBJECTS: [&str; 12] = [
    "The harbour master",
    "A tired courier",
    "The younger gardener",
    "One of the bakers",
    "The night train",
    "An old lighthouse",
    "The village choir",
    "A careful surveyor",
    "The second ferry",
    "Our neighbour",
    "The clockmaker",
    "A flock of starlings",
];

const VERBS: [&str; 10] = [
    "waited for",
    "walked past",
    "remembered",
    "described",
    "moved slowly toward",
    "left behind",
    "kept an eye on",
    "returned to",
    "spoke about",
    "turned away from",
];

const OBJECTS: [&str; 12] = [
    "the empty market square",
    "a row of wet umbrellas",
    "the stone bridge",
    "an unfinished letter",
    "the apple orchard",
    "a basket of lemons",
    "the closed post office",
    "the long gravel path",
    "a pair of green boots",
    "the noise of the river",
    "the last open window",
    "a map without names",
];

const ENDS: [&str; 8] = [
    "before the rain began",
    "as it did every autumn",
    "without a word",
    "while the bells rang",
    "on the way home",
    "for the third time that week",
    "when the lamps were lit",
    "until the fog lifted",
];

/// Who keeps the number.
const KEEPERS: [&str; 6] = ["Marta", "Ivo", "Selma", "Ruben", "Thea", "Anselm"];

impl Case {
    /// Of the seed `seed`, always the same.
    pub fn new(words: usize, depth: f64, seed: u64) -> Self {
        let mut stream = Stream::new(seed, &format!("haystack {words} {depth}"));
        let mut pick = |list: &[&'static str]| -> &'static str {
            list.get(stream.below(list.len()))
                .copied()
                .unwrap_or_default()
        };
        let keeper = pick(&KEEPERS);
        let mut sentences = Vec::new();
        let mut total = 0;
        while total < words {
            let parts = [pick(&SUBJECTS), pick(&VERBS), pick(&OBJECTS), pick(&ENDS)];
            let sentence = format!("{}.", parts.join(" "));
            total += sentence.split(' ').count();
            sentences.push(sentence);
        }
        // No sentence above holds a digit, so that the number stands nowhere else.
        let needle = (1_000_000 + stream.below(9_000_000)).to_string();
        let at = (depth * sentences.len() as f64).round() as usize;
        sentences.insert(
            at.min(sentences.len()),
            format!("The number that {keeper} keeps is {needle}."),
        );
        let prompt = format!(
            "{}\n\nQuestion: Which number does {keeper} keep?\nAnswer: The number that {keeper} keeps is",
            sentences.join(" ")
        );
        Case {
            words,
            depth,
            needle,
            prompt,
        }
    }

    /// Name in messages.
    pub fn name(&self) -> String {
        format!("{} words at {:.2}", self.words, self.depth)
    }

    /// Whether `answer` gives the number, and not a longer one that holds it.
    pub fn is_in(&self, answer: &str) -> bool {
        let numbers = answer.split(|c: char| !c.is_ascii_digit());
        numbers.into_iter().any(|number| number == self.needle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needle_stands_once_and_where_it_is_to() {
        for (depth, low, high) in [(0.0, 0.0, 0.01), (0.5, 0.4, 0.6), (1.0, 0.9, 1.0)] {
            let case = Case::new(400, depth, 9);
            assert_eq!(case.prompt.matches(&case.needle).count(), 1);
            assert_eq!(case.needle.len(), 7);
            let hay = case.prompt.split("\n\n").next().unwrap();
            assert!(hay.split(' ').count() >= 400);
            let at = hay.find("The number that").unwrap() as f64 / hay.len() as f64;
            assert!((low..=high).contains(&at), "{depth}: {at}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_for_ever() {
        assert_eq!(Case::new(50, 0.5, 7), Case::new(50, 0.5, 7));
        assert_ne!(Case::new(50, 0.5, 7).prompt, Case::new(50, 0.5, 8).prompt);
        let digest = crate::model::Digest::of(Case::new(50, 0.5, 7).prompt.as_bytes());
        assert_eq!(digest.short(), DIGEST);
    }

    /// Changes where haystacks change; then records of before and after are not comparable.
    const DIGEST: &str = "0a8ba0fee1ae";

    #[test]
    fn only_the_whole_number_counts() {
        let mut case = Case::new(10, 0.5, 1);
        case.needle = "1234567".to_owned();
        assert!(case.is_in(" 1234567."));
        assert!(!case.is_in(" 12345678"));
        assert!(!case.is_in(" 123456 7"));
        assert!(!case.is_in(""));
    }
}
