//! The tree of staged values: every file as it was written last, or as the engine filled it in.
//!
//! Made from the table and asked by number of node ([`Ino`]), as file systems are. A number is never used again:
//! whoever still has a directory open that was replaced is told that it is gone. Nothing in here knows an engine.

use std::collections::{BTreeMap, HashMap};

use rustix::io::Errno;

use crate::table::{Dir, Entry, File, Kind, Role};
use crate::value::{self, Value};

/// A node's number; the root's is [`Tree::ROOT`].
pub type Ino = u64;

/// The most nodes one write may make. The kernel asks its allocator; this is about as far as that goes.
const MOST_NEW_NODES: u64 = 1 << 20;

/// A file or a directory.
#[derive(Debug)]
pub struct Node {
    parent: Ino,
    name: String,
    /// Whether this name in its directory means this node as long as that is there.
    lasting: bool,
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
    /// The file that says how many numbered directories there are beside it.
    Count {
        most: i64,
        child: &'static Dir,
        role: Role,
        number: i64,
    },
}

impl Node {
    /// True for a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// False for a directory that was made by a write: its name may mean another node at any time.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        self.lasting
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

    /// What a file does besides holding a value.
    pub(crate) const fn role(&self) -> Role {
        match self.body {
            Body::Dir { .. } => Role::Plain,
            Body::File { spec, .. } => spec.role,
            Body::Count { role, .. } => role,
        }
    }

    /// What is written to a file means, as its kind says.
    pub(crate) fn parse(&self, text: &[u8]) -> Result<Value, Errno> {
        match &self.body {
            Body::Dir { .. } => Err(Errno::ISDIR),
            Body::File { spec, .. } if spec.writable => Value::parse(&spec.kind, text),
            Body::File { .. } | Body::Count { .. } => Err(Errno::ACCESS),
        }
    }

    /// Its name in the directory it lies in.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The node it lies in; its own number for the root.
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
    /// The number of the root.
    pub const ROOT: Ino = 1;

    /// A tree with nothing staged.
    #[must_use]
    pub(crate) fn new(root: &'static Dir) -> Self {
        let mut tree = Self {
            nodes: HashMap::new(),
            next: Self::ROOT,
        };
        tree.grow(Self::ROOT, String::new(), true, root);
        tree
    }

    /// The node called so.
    ///
    /// # Errors
    /// ENODEV: it was replaced meanwhile.
    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::NODEV)
    }

    /// The node of this name in a directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR; ENODEV when the directory is gone.
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
            .try_fold(Self::ROOT, |at, name| self.lookup(at, name))
    }

    /// Names and numbers of what is in a directory.
    ///
    /// # Errors
    /// ENOTDIR; ENODEV when it is gone.
    pub fn list(&self, ino: Ino) -> Result<impl Iterator<Item = (&str, Ino)>, Errno> {
        match &self.node(ino)?.body {
            Body::Dir { children, .. } => Ok(children.iter().map(|(name, ino)| (name.as_str(), *ino))),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// What a file shows, without the line end.
    ///
    /// # Errors
    /// EISDIR; ENODEV when it is gone.
    pub fn show(&self, ino: Ino) -> Result<String, Errno> {
        match &self.node(ino)?.body {
            Body::File { value, .. } => Ok(value.to_string()),
            Body::Count { number, .. } => Ok(number.to_string()),
            Body::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// The value of a file; none of a directory or a count.
    pub(crate) fn value(&self, ino: Ino) -> Option<&Value> {
        match &self.node(ino).ok()?.body {
            Body::File { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Stages what was written to a file.
    ///
    /// # Errors
    /// What the kernel says to it; nothing changes then.
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
                most, child, number, ..
            } => {
                let wanted = value::int(text)?;
                if wanted < 0 || wanted > *most {
                    return Err(Errno::INVAL);
                }
                let (child, parent) = (*child, node.parent);
                if wanted.unsigned_abs().saturating_mul(size(child)) > MOST_NEW_NODES {
                    return Err(Errno::NOMEM);
                }
                *number = wanted;
                self.renumber(parent, child, wanted.unsigned_abs());
                Ok(())
            }
        }
    }

    /// Stages what a write was found to mean.
    pub(crate) fn set(&mut self, ino: Ino, new: Value) {
        if let Some(Node {
            body: Body::File { value, .. },
            ..
        }) = self.nodes.get_mut(&ino)
        {
            *value = new;
        }
    }

    /// Makes a directory of this name in the root.
    ///
    /// # Errors
    /// EEXIST: there is something of that name.
    pub(crate) fn make(&mut self, name: &str, spec: &'static Dir) -> Result<Ino, Errno> {
        match self.lookup(Self::ROOT, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => Ok(self.grow(Self::ROOT, name.to_owned(), false, spec)),
        }
    }

    /// Fills in a file, as the engine does.
    pub(crate) fn fill(&mut self, dir: Ino, name: &str, new: Value) {
        if let Ok(ino) = self.lookup(dir, name) {
            self.set(ino, new);
        }
    }

    /// Replaces the numbered directories that the engine makes in `dir` by `number` new ones, and returns them.
    pub(crate) fn refill(&mut self, dir: Ino, number: u64) -> Vec<Ino> {
        let found = self.nodes.get(&dir).and_then(|node| match &node.body {
            Body::Dir { spec, .. } => spec.entries.iter().find_map(|entry| match entry {
                Entry::Found { child } => Some(*child),
                _ => None,
            }),
            _ => None,
        });
        found.map_or(Vec::new(), |child| self.renumber(dir, child, number))
    }

    fn renumber(&mut self, dir: Ino, child: &'static Dir, number: u64) -> Vec<Ino> {
        let before: Vec<Ino> = self.list(dir).map_or(Vec::new(), |children| {
            children
                .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_digit()))
                .map(|(_, ino)| ino)
                .collect()
        });
        before.into_iter().for_each(|ino| self.remove(ino));
        (0..number)
            .map(|nth| self.grow(dir, nth.to_string(), false, child))
            .collect()
    }

    /// Takes a node away, with all that is below.
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

    fn grow(&mut self, parent: Ino, name: String, lasting: bool, spec: &'static Dir) -> Ino {
        let children = BTreeMap::new();
        let dir = self.add(parent, name, lasting, Body::Dir { spec, children });
        for entry in spec.entries {
            match entry {
                Entry::File(spec) => {
                    let value = first(&spec.kind);
                    self.add(dir, spec.name.to_owned(), true, Body::File { spec, value });
                }
                Entry::Dir(name, spec) => {
                    self.grow(dir, (*name).to_owned(), true, spec);
                }
                Entry::Numbered {
                    count,
                    most,
                    child,
                    role,
                } => {
                    let body = Body::Count {
                        most: *most,
                        child,
                        role: *role,
                        number: 0,
                    };
                    self.add(dir, (*count).to_owned(), true, body);
                }
                Entry::Found { .. } => {}
            }
        }
        dir
    }

    fn add(&mut self, parent: Ino, name: String, lasting: bool, body: Body) -> Ino {
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
            lasting,
            body,
        };
        self.nodes.insert(ino, node);
        ino
    }
}

/// What a file shows before anything was written.
fn first(kind: &Kind) -> Value {
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

/// How many nodes a new directory brings.
fn size(dir: &Dir) -> u64 {
    let entries = dir.entries.iter().map(|entry| match entry {
        Entry::Dir(_, dir) => size(dir),
        Entry::File(_) | Entry::Numbered { .. } => 1,
        Entry::Found { .. } => 0,
    });
    1 + entries.sum::<u64>()
}

#[cfg(test)]
mod tests;
