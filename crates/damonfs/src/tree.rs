//! The tree of staged values: every file holds what a client wrote last, or what the engine set.
//!
//! The tree is built from `table` and addressed by inode number ([`Ino`]). Numbers are never reused, so a
//! file that stays open after its directory was replaced reports ENODEV. The tree knows no engine.

use std::collections::{BTreeMap, HashMap};

use rustix::io::Errno;

use crate::table::{Dir, Entry, File, Kind, Role};
use crate::value::{self, Value};

/// An inode number. The root has [`Tree::ROOT`].
pub type Ino = u64;

/// Maximum number of nodes that one write may create. The kernel is limited by its allocator to a similar
/// number.
const MAX_NEW_NODES: u64 = 1 << 20;

/// A file or a directory.
#[derive(Debug)]
pub struct Node {
    parent: Ino,
    name: String,
    /// True if the name denotes this node for as long as the parent directory exists.
    permanent: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Dir {
        spec: &'static Dir,
        children: BTreeMap<String, Ino>,
    },
    File {
        spec: &'static File,
        value: Value,
    },
    /// A file with the number of numbered directories next to it.
    Count {
        max: i64,
        child: &'static Dir,
        role: Role,
        number: i64,
    },
}

impl Node {
    /// Returns true for a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// Returns false for a directory that was created by a write: its name may denote another node at any
    /// time.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The permission bits.
    #[must_use]
    pub const fn mode(&self) -> u16 {
        match self.body {
            Body::Dir { .. } => 0o755,
            Body::File {
                spec: File { writable: false, .. },
                ..
            } => 0o400,
            Body::File { .. } | Body::Count { .. } => 0o600,
        }
    }

    /// The effect of a file besides holding a value.
    pub(crate) const fn role(&self) -> Role {
        match self.body {
            Body::Dir { .. } => Role::Plain,
            Body::File { spec, .. } => spec.role,
            Body::Count { role, .. } => role,
        }
    }

    /// Parses text written to a file, according to the file's kind.
    pub(crate) fn parse(&self, text: &[u8]) -> Result<Value, Errno> {
        match &self.body {
            Body::Dir { .. } => Err(Errno::ISDIR),
            Body::File { spec, .. } if spec.writable => Value::parse(&spec.kind, text),
            Body::File { .. } | Body::Count { .. } => Err(Errno::ACCESS),
        }
    }

    /// The name in the parent directory.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The parent directory. The root is its own parent.
    #[must_use]
    pub const fn parent(&self) -> Ino {
        self.parent
    }
}

/// The staged values.
#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<Ino, Node>,
    next: Ino,
}

impl Tree {
    /// The inode number of the root.
    pub const ROOT: Ino = 1;

    /// A tree with nothing staged.
    #[must_use]
    pub(crate) fn new(root: &'static Dir) -> Self {
        let mut tree = Self {
            nodes: HashMap::new(),
            next: Self::ROOT,
        };
        tree.add_dir(Self::ROOT, String::new(), true, root);
        tree
    }

    /// The node with this number.
    ///
    /// # Errors
    /// ENODEV: the node was replaced.
    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::NODEV)
    }

    /// The node of this name in a directory.
    ///
    /// # Errors
    /// ENOENT: there is no such name. ENOTDIR: `parent` is a file. ENODEV: the directory is gone.
    pub fn lookup(&self, parent: Ino, name: &str) -> Result<Ino, Errno> {
        match &self.node(parent)?.body {
            Body::Dir { children, .. } => children.get(name).copied().ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The node at a path like `admin/kdamonds/0/state`.
    ///
    /// # Errors
    /// As [`Tree::lookup`].
    pub fn find(&self, path: &str) -> Result<Ino, Errno> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names
            .into_iter()
            .try_fold(Self::ROOT, |dir, name| self.lookup(dir, name))
    }

    /// Names and inode numbers of the entries of a directory.
    ///
    /// # Errors
    /// ENOTDIR: `ino` is a file. ENODEV: the directory is gone.
    pub fn list(&self, ino: Ino) -> Result<impl Iterator<Item = (&str, Ino)>, Errno> {
        match &self.node(ino)?.body {
            Body::Dir { children, .. } => Ok(children.iter().map(|(name, ino)| (name.as_str(), *ino))),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The value of a file as text, without a newline.
    ///
    /// # Errors
    /// EISDIR: `ino` is a directory. ENODEV: the file is gone.
    pub fn show(&self, ino: Ino) -> Result<String, Errno> {
        match &self.node(ino)?.body {
            Body::File { value, .. } => Ok(value.to_string()),
            Body::Count { number, .. } => Ok(number.to_string()),
            Body::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// The value of a file. `None` for a directory or a count.
    pub(crate) fn value(&self, ino: Ino) -> Option<&Value> {
        match &self.node(ino).ok()?.body {
            Body::File { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Parses text written to a file and stages the value.
    ///
    /// # Errors
    /// The errno that the kernel returns for this write. Nothing changes then.
    pub fn store(&mut self, ino: Ino, text: &[u8]) -> Result<(), Errno> {
        let node = self.nodes.get_mut(&ino).ok_or(Errno::NODEV)?;
        match &mut node.body {
            Body::Dir { .. } => Err(Errno::ISDIR),
            Body::File {
                spec: File { writable: false, .. },
                ..
            } => Err(Errno::ACCESS),
            Body::File { spec, value } => {
                *value = Value::parse(&spec.kind, text)?;
                Ok(())
            }
            Body::Count {
                max, child, number, ..
            } => {
                let new = value::parse_int(text)?;
                if new < 0 || new > *max {
                    return Err(Errno::INVAL);
                }
                let (child, parent) = (*child, node.parent);
                if new.unsigned_abs().saturating_mul(count_nodes(child)) > MAX_NEW_NODES {
                    return Err(Errno::NOMEM);
                }
                *number = new;
                self.replace_numbered(parent, child, new.unsigned_abs());
                Ok(())
            }
        }
    }

    /// Sets the value of a file.
    pub(crate) fn set(&mut self, ino: Ino, new: Value) {
        if let Some(Node {
            body: Body::File { value, .. },
            ..
        }) = self.nodes.get_mut(&ino)
        {
            *value = new;
        }
    }

    /// Creates a directory of this name in the root.
    ///
    /// # Errors
    /// EEXIST: the name exists.
    pub(crate) fn create_dir(&mut self, name: &str, spec: &'static Dir) -> Result<Ino, Errno> {
        match self.lookup(Self::ROOT, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => Ok(self.add_dir(Self::ROOT, name.to_owned(), false, spec)),
        }
    }

    /// Sets the value of the file `name` in `dir`.
    pub(crate) fn set_file(&mut self, dir: Ino, name: &str, new: Value) {
        if let Ok(ino) = self.lookup(dir, name) {
            self.set(ino, new);
        }
    }

    /// Replaces the generated directories in `dir` with `number` new ones and returns them.
    pub(crate) fn replace_generated(&mut self, dir: Ino, number: u64) -> Vec<Ino> {
        let child = self.nodes.get(&dir).and_then(|node| match &node.body {
            Body::Dir { spec, .. } => spec.entries.iter().find_map(|entry| match entry {
                Entry::Generated { child } => Some(*child),
                _ => None,
            }),
            _ => None,
        });
        child.map_or(Vec::new(), |child| self.replace_numbered(dir, child, number))
    }

    fn replace_numbered(&mut self, dir: Ino, child: &'static Dir, number: u64) -> Vec<Ino> {
        let old: Vec<Ino> = self.list(dir).map_or(Vec::new(), |children| {
            children
                .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_digit()))
                .map(|(_, ino)| ino)
                .collect()
        });
        old.into_iter().for_each(|ino| self.remove(ino));
        (0..number)
            .map(|nth| self.add_dir(dir, nth.to_string(), false, child))
            .collect()
    }

    /// Removes a node and everything below it.
    pub(crate) fn remove(&mut self, ino: Ino) {
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        if let Some(Node {
            body: Body::Dir { children, .. },
            ..
        }) = self.nodes.get_mut(&node.parent)
        {
            children.remove(&node.name);
        }
        if let Body::Dir { children, .. } = node.body {
            children.into_values().for_each(|child| self.remove(child));
        }
    }

    fn add_dir(&mut self, parent: Ino, name: String, permanent: bool, spec: &'static Dir) -> Ino {
        let children = BTreeMap::new();
        let dir = self.add(parent, name, permanent, Body::Dir { spec, children });
        for entry in spec.entries {
            match entry {
                Entry::File(spec) => {
                    let value = default_value(&spec.kind);
                    self.add(dir, spec.name.to_owned(), true, Body::File { spec, value });
                }
                Entry::Dir(name, spec) => {
                    self.add_dir(dir, (*name).to_owned(), true, spec);
                }
                Entry::Numbered {
                    count,
                    max,
                    child,
                    role,
                } => {
                    let body = Body::Count {
                        max: *max,
                        child,
                        role: *role,
                        number: 0,
                    };
                    self.add(dir, (*count).to_owned(), true, body);
                }
                Entry::Generated { .. } => {}
            }
        }
        dir
    }

    fn add(&mut self, parent: Ino, name: String, permanent: bool, body: Body) -> Ino {
        let ino = self.next;
        self.next += 1;
        if let Some(Node {
            body: Body::Dir { children, .. },
            ..
        }) = self.nodes.get_mut(&parent)
        {
            children.insert(name.clone(), ino);
        }
        let node = Node {
            parent,
            name,
            permanent,
            body,
        };
        self.nodes.insert(ino, node);
        ino
    }
}

/// The value of a file before the first write.
fn default_value(kind: &Kind) -> Value {
    match *kind {
        Kind::Unsigned { default, .. } => Value::Unsigned(default),
        Kind::Int { default, .. } => Value::Signed(default),
        Kind::Bool => Value::Bool(false),
        Kind::Word { default, .. } => Value::Word(default),
        Kind::Text => Value::Text(String::new()),
        Kind::Rows { default: [], .. } => Value::Rows(Vec::new()),
        Kind::Rows { default, .. } => Value::Rows(vec![default.to_vec()]),
    }
}

/// Number of nodes that a new directory adds.
fn count_nodes(dir: &Dir) -> u64 {
    let entries = dir.entries.iter().map(|entry| match entry {
        Entry::Dir(_, dir) => count_nodes(dir),
        Entry::File(_) | Entry::Numbered { .. } => 1,
        Entry::Generated { .. } => 0,
    });
    1 + entries.sum::<u64>()
}

#[cfg(test)]
mod tests;
