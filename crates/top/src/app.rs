//! The loop: keys, answers and time in, drawings out.
//!
//! Three threads. One waits for keys, one asks the source, which may take seconds, and this one draws. Only
//! this one knows the model.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Rect, Size};
use thermo_term::interrupt;

use crate::model::{Answer, Ending, Key, Model, Request, answer};
use crate::source::{Source, SourceError};
use crate::view::{self, Theme};

/// An agent publishes figures once a second.
const REFRESH: Duration = Duration::from_secs(1);
/// How often signals are checked for.
const TICK: Duration = Duration::from_millis(200);
/// How often a replay moves on.
const PLAYING_TICK: Duration = Duration::from_millis(50);

/// Why the view ended.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The source gave no first answer.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[source] io::Error),
    /// The thread that asks the source has panicked.
    #[error("the thread that reads the figures has ended: please report this with the text above")]
    Panicked,
}

enum Message {
    Input(io::Result<Event>),
    Answer(Box<Answer>),
}

/// Shows `source` on the terminal until the user leaves. The terminal is restored in any case.
///
/// # Errors
/// The source gives no first answer, or the terminal cannot be used.
pub fn run(mut source: Box<dyn Source>, theme: Theme) -> Result<Ending, TopError> {
    interrupt::listen().map_err(TopError::Terminal)?;
    let mut model = Model::new(source.facts());
    let first = answer(&mut *source, model.request((0, 0)));
    if let Err(error) = &first.list {
        return Err(TopError::Source(error.clone()));
    }
    model.receive(first);
    // This also restores the terminal when a thread panics.
    let terminal = ratatui::try_init().map_err(TopError::Terminal)?;
    let ended = App::new(model, theme, terminal, source).and_then(App::run);
    // The panic's report is on the screen since then; restoring twice would move the cursor into it.
    if matches!(ended, Err(TopError::Panicked)) {
        return ended;
    }
    let restored = ratatui::try_restore().map_err(TopError::Terminal);
    ended.and_then(|ending| restored.map(|()| ending))
}

struct App {
    model: Model,
    theme: Theme,
    terminal: DefaultTerminal,
    messages: Receiver<Message>,
    requests: Sender<Request>,
    worker: thread::JoinHandle<()>,
    /// The last request, and whether its answer is still awaited.
    last_request: Option<Request>,
    is_waiting: bool,
    answered_at: Instant,
}

impl App {
    fn new(
        model: Model,
        theme: Theme,
        terminal: DefaultTerminal,
        source: Box<dyn Source>,
    ) -> Result<Self, TopError> {
        let (to_app, messages) = channel();
        let (requests, to_worker) = channel();
        let keys = to_app.clone();
        spawn("keys", move || read_keys(&keys))?;
        let worker = spawn("source", move || ask(source, &to_worker, &to_app))?;
        Ok(Self {
            model,
            theme,
            terminal,
            messages,
            requests,
            worker,
            last_request: None,
            is_waiting: false,
            answered_at: Instant::now(),
        })
    }

    fn run(mut self) -> Result<Ending, TopError> {
        let mut ticked_at = Instant::now();
        self.draw()?;
        loop {
            if interrupt::requested() {
                return Ok(Ending::Interrupted);
            }
            if let Some(ending) = self.model.ending {
                return Ok(ending);
            }
            self.request()?;
            let is_playing = self.is_playing();
            let tick = if is_playing { PLAYING_TICK } else { TICK };
            let received = match self.messages.recv_timeout(tick) {
                Ok(message) => self.receive(message)?,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return Err(TopError::Panicked),
            };
            self.model.tick(ticked_at.elapsed());
            ticked_at = Instant::now();
            if received || is_playing {
                self.draw()?;
            }
        }
    }

    fn is_playing(&self) -> bool {
        let playback = self.model.playback.as_ref();
        playback.is_some_and(crate::model::Playback::is_playing)
    }

    fn area(&self) -> Rect {
        let Size { width, height } = self.terminal.size().unwrap_or_default();
        Rect::new(0, 0, width, height)
    }

    /// Asks the source if the screen needs something else, or an agent has new figures.
    fn request(&mut self) -> Result<(), TopError> {
        if self.worker.is_finished() {
            return Err(TopError::Panicked);
        }
        if self.is_waiting {
            return Ok(());
        }
        let cells = view::heatmap_cells(&self.model, self.theme, self.area());
        let request = self.model.request(cells);
        let is_old = self.model.playback.is_none() && self.answered_at.elapsed() >= REFRESH;
        if !is_old && self.last_request.as_ref() == Some(&request) {
            return Ok(());
        }
        self.last_request = Some(request.clone());
        self.is_waiting = true;
        self.requests.send(request).map_err(|_| TopError::Panicked)
    }

    fn receive(&mut self, message: Message) -> Result<bool, TopError> {
        match message {
            Message::Input(event) => match event.map_err(TopError::Terminal)? {
                Event::Key(key) => {
                    if let Some(key) = key_of(key) {
                        self.model.update(key);
                    }
                }
                Event::Resize(..) => self.terminal.autoresize().map_err(TopError::Terminal)?,
                _ => return Ok(false),
            },
            Message::Answer(answer) => {
                self.model.receive(*answer);
                (self.is_waiting, self.answered_at) = (false, Instant::now());
            }
        }
        Ok(true)
    }

    fn draw(&mut self) -> Result<(), TopError> {
        let (model, theme) = (&self.model, self.theme);
        let draw =
            |frame: &mut ratatui::Frame<'_>| view::render(model, theme, frame.area(), frame.buffer_mut());
        self.terminal.draw(draw).map_err(TopError::Terminal)?;
        Ok(())
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, TopError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(TopError::Terminal)
}

/// Sends each event of the terminal, until the first error or the end of the application.
fn read_keys(to_app: &Sender<Message>) {
    loop {
        let event = event::read();
        let failed = event.is_err();
        if to_app.send(Message::Input(event)).is_err() || failed {
            return;
        }
    }
}

/// Answers each request, until the application ends.
fn ask(mut source: Box<dyn Source>, requests: &Receiver<Request>, to_app: &Sender<Message>) {
    while let Ok(request) = requests.recv() {
        let answer = Box::new(answer(&mut *source, request));
        if to_app.send(Message::Answer(answer)).is_err() {
            return;
        }
    }
}

fn key_of(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace => Key::Escape,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}
