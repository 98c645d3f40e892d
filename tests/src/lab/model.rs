//! A made model: the files of a published one, in any size, the same bytes for the same seed.
//!
//! In: shards, total bytes, seed. Out: (name, bytes) one file at a time, or the files in a folder. The shards are valid
//! safetensors (header length, JSON header, tensor bytes). Deliberately absent: weights that mean anything.

use std::{fs, io, path::Path};

use serde_json::{Map, Value, json};

use crate::lab::seed;

/// Bytes of a shard before its tensors: length word and header, padded with blanks as safetensors allows. Fixed, so
/// that offsets (whose digits depend on the size) never move the data.
const HEAD_BYTES: u64 = 2048;
/// Bytes of the length word.
const LENGTH_BYTES: u64 = 8;
/// Tensors in a shard; their header entries take 8 * 110 of the 2,040 bytes there are.
const TENSORS: u64 = 8;
/// Words of the made tokenizer: about 60 KiB of JSON, a small file beside big ones.
const VOCABULARY: u64 = 2000;

/// The file of zero bytes that every model has: stagers forget such files.
pub const EMPTY_FILE: &str = "tokenizer.added";

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Shard files, at least one.
    pub shards: u64,
    /// Bytes of all shard files together, at least 2,056 a shard; the small files come on top (about 60 KiB).
    pub total_bytes: u64,
    /// Seed of every byte.
    pub seed: u64,
}

impl Model {
    /// All files as (name, bytes), made one at a time; small ones last.
    pub fn files(self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let shards = (1..=self.shards).map(move |number| (self.shard_name(number), self.shard(number)));
        shards.chain(self.small_files())
    }

    /// Write all files into `folder`, which is made when absent.
    pub fn write_to(self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (name, bytes) in self.files() {
            fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }

    /// `model-00001-of-00003.safetensors`; numbers start at 1.
    pub fn shard_name(self, number: u64) -> String {
        format!("model-{number:05}-of-{:05}.safetensors", self.shards)
    }

    /// Bytes of shard `number`: equal shares, the last one takes the rest.
    pub fn shard_bytes(self, number: u64) -> u64 {
        let share = self.total_bytes / self.shards;
        if number == self.shards { self.total_bytes - share * (self.shards - 1) } else { share }
    }

    fn shard(self, number: u64) -> Vec<u8> {
        let size = self.shard_bytes(number);
        let mut header = serde_json::to_vec(&self.header(number)).expect("plain JSON values serialise");
        let room = (HEAD_BYTES - LENGTH_BYTES) as usize;
        assert!(header.len() <= room, "the header of {} bytes fits in {room}", header.len());
        header.resize(room, b' ');
        let mut bytes = vec![0; size as usize];
        let (head, tensors) = bytes.split_at_mut(HEAD_BYTES as usize);
        let (length, text) = head.split_at_mut(LENGTH_BYTES as usize);
        length.copy_from_slice(&(HEAD_BYTES - LENGTH_BYTES).to_le_bytes());
        text.copy_from_slice(&header);
        seed::fill(seed::mix(self.seed ^ number), 0, tensors);
        bytes
    }

    fn header(self, number: u64) -> Value {
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
        for (name, start, end) in self.tensors(number) {
            header.insert(name, json!({ "dtype": "U8", "shape": [end - start], "data_offsets": [start, end] }));
        }
        Value::Object(header)
    }

    /// Name, start and end of each tensor of a shard, in the bytes after its header.
    fn tensors(self, number: u64) -> impl Iterator<Item = (String, u64, u64)> {
        let all = self.shard_bytes(number).checked_sub(HEAD_BYTES).expect("a shard has 2,056 bytes or more");
        let share = all / TENSORS;
        (0..TENSORS).map(move |at| {
            let end = if at + 1 == TENSORS { all } else { share * (at + 1) };
            let layer = (number - 1) * TENSORS + at;
            (format!("model.layers.{layer}.mlp.weight"), share * at, end)
        })
    }

    fn small_files(self) -> Vec<(String, Vec<u8>)> {
        let mut weight_map = Map::new();
        for number in 1..=self.shards {
            let names = self.tensors(number).map(|(name, ..)| (name, json!(self.shard_name(number))));
            weight_map.extend(names);
        }
        let total = self.total_bytes - self.shards * HEAD_BYTES;
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
            "num_hidden_layers": self.shards * TENSORS, "vocab_size": VOCABULARY,
        });
        let words = (0..VOCABULARY).map(|id| (format!("{:016x}", seed::mix(self.seed ^ !id)), json!(id)));
        let vocabulary: Map<_, _> = words.collect();
        let tokenizer = json!({ "version": "1.0", "model": { "type": "BPE", "vocab": vocabulary, "merges": [] } });
        let tokenizer_config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192 });
        let named = [
            ("model.safetensors.index.json", index),
            ("config.json", config),
            ("tokenizer.json", tokenizer),
            ("tokenizer_config.json", tokenizer_config),
        ];
        let mut files = named.map(|(name, value)| (name.to_owned(), value.to_string().into_bytes())).to_vec();
        files.push((EMPTY_FILE.to_owned(), Vec::new()));
        files
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SMALL: Model = Model { shards: 3, total_bytes: 1_000_003, seed: 1 };

    #[test]
    fn the_same_seed_makes_the_same_files_and_another_seed_other_bytes() {
        assert!(SMALL.files().eq(SMALL.files()));
        let other: BTreeMap<_, _> = Model { seed: 2, ..SMALL }.files().collect();
        for (name, bytes) in SMALL.files().filter(|(name, _)| name.ends_with(".safetensors")) {
            assert_ne!(bytes, other[&name]);
        }
    }

    #[test]
    fn shards_are_valid_safetensors_of_exactly_the_total_size() {
        let mut total = 0;
        for (_, bytes) in SMALL.files().take(3) {
            let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
            let parsed: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + header]).expect("JSON header");
            let ends = parsed.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
            assert_eq!(ends.max(), Some((bytes.len() - 8 - header) as u64), "tensors cover the data");
            total += bytes.len() as u64;
        }
        assert_eq!(total, SMALL.total_bytes);
    }

    #[test]
    fn the_index_names_every_shard_and_one_file_is_empty() {
        let files: BTreeMap<_, _> = SMALL.files().collect();
        assert_eq!(files.len(), 8);
        assert!(files[EMPTY_FILE].is_empty());
        let index: Value = serde_json::from_slice(&files["model.safetensors.index.json"]).expect("JSON");
        let map = index["weight_map"].as_object().expect("a map");
        assert!(map.values().all(|shard| files.contains_key(shard.as_str().expect("a name"))));
        assert_eq!(map.len(), 24);
    }

    #[test]
    fn files_are_written_as_they_are_made() {
        let folder = tempfile::tempdir().expect("folder");
        SMALL.write_to(folder.path()).expect("written");
        for (name, bytes) in SMALL.files() {
            assert_eq!(fs::read(folder.path().join(name)).expect("file"), bytes);
        }
    }
}
