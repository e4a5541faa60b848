//! How `[model]` is read: its kind, and then the keys that a model of this kind has.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, VariantAccess, Visitor,
};

use super::dimensions::Written;
use super::{LanguageModel, SECTION};
use crate::model::Model;
use crate::model::families::Family;

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("Model", Self::KINDS, ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("enum Model")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Model, A::Error> {
        match access.variant_seed(KindSeed)? {
            (Some(family), section) => section.newtype_variant_seed(family).map(Model::Language),
            (None, section) => section.newtype_variant().map(Model::Swiglu),
        }
    }
}

/// The name of a kind: of a family, or of SwiGLU stacks.
struct KindSeed;

impl<'de> DeserializeSeed<'de> for KindSeed {
    type Value = Option<&'static Family>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let kind = String::deserialize(deserializer)?;
        match Family::of_kind(&kind) {
            None if kind != Model::SWIGLU => Err(D::Error::unknown_variant(&kind, Model::KINDS)),
            family => Ok(family),
        }
    }
}

/// A model of the family from its keys.
impl<'de> DeserializeSeed<'de> for &'static Family {
    type Value = LanguageModel;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LanguageModel, D::Error> {
        let written = deserializer.deserialize_map(KeysVisitor(self))?;
        LanguageModel::resolve(self, &written).map_err(D::Error::custom)
    }
}

struct KeysVisitor(&'static Family);

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("struct LanguageModel")
    }

    fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<Written, A::Error> {
        Written::deserialize(MapAccessDeserializer::new(FamilyKeys { family: self.0, keys }))
    }
}

/// Keys of which the family has each.
struct FamilyKeys<A> {
    family: &'static Family,
    keys: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for FamilyKeys<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.keys.next_key_seed(KeySeed(self.family, seed))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.keys.next_value_seed(seed)
    }
}

struct KeySeed<K>(&'static Family, K);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        use serde::de::IntoDeserializer;

        let Self(family, seed) = self;
        let key = String::deserialize(deserializer)?;
        let known = || SECTION.keys.iter().chain(family.section.keys).map(|known| known.name);
        if known().any(|known| known == key) {
            return seed.deserialize(key.into_deserializer());
        }
        let known: Vec<String> = known().map(|known| format!("`{known}`")).collect();
        // serde's words for it, which take a list that is there for good.
        Err(D::Error::custom(format!("unknown field `{key}`, expected one of {}", known.join(", "))))
    }
}
