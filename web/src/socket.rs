//! One WebSocket: snapshots, small and moving pictures out, acknowledgements and changes in.
//!
//! A client has at most one snapshot and one picture of each stream under way: a client that is too
//! slow for a snapshot skips it, and the next picture of a stream waits until the client has
//! acknowledged the last. This bounds the memory that a client can make the server hold, and nothing
//! waits for a client.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use selvedge_units::Duration;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::access::{view_only, watch_only};
use crate::app::{App, stopped};
use crate::knobs::{self, Target};
use crate::problem::Problem;
use crate::publish::Published;
use crate::session::Role;
use crate::video::Watching;

/// The largest message from a client, in bytes.
const MESSAGE_MAX: usize = 4096;
/// How often new moving pictures are looked for while some are watched.
const VIDEO_EVERY: Duration = Duration::from_millis(20);
/// The most streams a client may have pictures of.
const SHOWN_MAX: usize = 256;
/// A larger picture is no thumbnail.
const PICTURE_MAX: usize = 1 << 20;

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// The WebSocket of the page.
pub(crate) async fn upgrade(
    State(app): State<Arc<App>>,
    Extension(role): Extension<Role>,
    upgrade: Upgrade,
) -> Response {
    open(app, role, upgrade)
}

/// The WebSocket of those who only watch: it has tracks and their pictures, whatever the role.
pub(crate) async fn upgrade_to_watch(State(app): State<Arc<App>>, upgrade: Upgrade) -> Response {
    open(app, Role::Watch, upgrade)
}

fn open(app: Arc<App>, role: Role, upgrade: Upgrade) -> Response {
    let Ok(upgrade) = upgrade else {
        let message = "this route speaks WebSocket only";
        let remedy = "for one snapshot, GET /api/v1/node";
        return Problem::bad("not-a-websocket", "Upgrade", message, remedy).into_response();
    };
    let Ok(permit) = Arc::clone(&app.sockets).try_acquire_owned() else {
        let message = format!("{} pages are open already", app.limits.sockets);
        let (status, remedy) = (StatusCode::SERVICE_UNAVAILABLE, "close one and try again");
        return Problem::new(status, "too-many-sockets", message, remedy).into_response();
    };
    upgrade
        .max_message_size(MESSAGE_MAX)
        .max_frame_size(MESSAGE_MAX)
        .on_upgrade(move |socket| run(socket, app, role, permit))
}

async fn run(mut socket: WebSocket, app: Arc<App>, role: Role, _permit: OwnedSemaphorePermit) {
    let mut stopping = app.stopping.clone();
    let mut published = app.published.subscribe();
    let mut session = Session {
        app: &app,
        role,
        names: Arc::default(),
        tracks: Arc::default(),
        shown: BTreeMap::new(),
        watching: Watching::default(),
    };
    let mut pings = interval((app.limits.silence / 4).into());
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut videos = interval(VIDEO_EVERY.into());
    videos.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let ended: Result<(), axum::Error> = loop {
        let step = tokio::select! {
            () = stopped(&mut stopping) => {
                let frame = CloseFrame { code: close_code::AWAY, reason: "stopping".into() };
                break socket.send(Message::Close(Some(frame))).await;
            }
            () = sleep_until(heard + app.limits.silence.to_std()) => break Ok(()),
            _ = videos.tick(), if !session.watching.is_idle() => session.send_videos(&mut socket).await,
            _ = pings.tick() => socket.send(Message::Ping(Default::default())).await,
            changed = published.changed() => {
                if changed.is_err() {
                    break Ok(());
                }
                let next = published.borrow_and_update().clone();
                let text = session.text_of(next);
                match socket.send(Message::Text(text)).await {
                    Ok(()) => session.send_pictures(&mut socket).await,
                    error => error,
                }
            }
            message = socket.recv() => {
                heard = Instant::now();
                match message {
                    Some(Ok(message)) => match session.handle(message) {
                        ControlFlow::Break(()) => break Ok(()),
                        ControlFlow::Continue(None) => Ok(()),
                        ControlFlow::Continue(Some(reply)) => {
                            socket.send(Message::Text(reply.to_string().into())).await
                        }
                    },
                    Some(Err(error)) => break Err(error),
                    None => break Ok(()),
                }
            }
        };
        if step.is_err() {
            break step;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "socket ended");
    }
}

struct Session<'a> {
    app: &'a App,
    role: Role,
    /// Names by index, as in the last snapshot sent.
    names: Arc<[String]>,
    /// The tracks, likewise.
    tracks: Arc<[[String; 3]]>,
    /// The streams whose pictures are wanted, by index.
    shown: BTreeMap<u16, PictureProgress>,
    watching: Watching,
}

/// The progress of the pictures of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct PictureProgress {
    last: Option<u64>,
    unacknowledged: bool,
}

impl Session<'_> {
    /// What is sent of this. Indices are only valid for the list they were given with.
    fn text_of(&mut self, Published { text, videos, tracks, names }: Published) -> Utf8Bytes {
        if !Arc::ptr_eq(&self.names, &names) {
            self.names = names;
            self.shown.clear();
        }
        if !Arc::ptr_eq(&self.tracks, &tracks) {
            self.tracks = tracks;
            self.watching.clear();
        }
        if self.role == Role::Watch { videos } else { text }
    }

    /// Sends each wanted picture that is new and whose predecessor was acknowledged.
    async fn send_pictures(&mut self, socket: &mut WebSocket) -> Result<(), axum::Error> {
        for (index, shown) in self.shown.iter_mut().filter(|(_, shown)| !shown.unacknowledged) {
            let Some(name) = self.names.get(usize::from(*index)) else { continue };
            let Some((number, jpeg)) = self.app.view.thumbnail(name) else { continue };
            if shown.last == Some(number) || jpeg.len() > PICTURE_MAX {
                continue;
            }
            *shown = PictureProgress { last: Some(number), unacknowledged: true };
            socket.send(Message::Binary(picture(*index, number, &jpeg).into())).await?;
        }
        Ok(())
    }

    /// Sends the new pictures of the tracks that are watched.
    async fn send_videos(&mut self, socket: &mut WebSocket) -> Result<(), axum::Error> {
        for message in self.watching.take(&*self.app.view) {
            socket.send(Message::Binary(message.into())).await?;
        }
        Ok(())
    }

    /// Handles one message; breaks at the end of the conversation.
    fn handle(&mut self, message: Message) -> ControlFlow<(), Option<Value>> {
        let reply = match message {
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(object)) => self.take(&object),
                _ => Some(error_reply(&Value::Null, &unreadable())),
            },
            Message::Binary(_) => Some(error_reply(&Value::Null, &unreadable())),
            Message::Ping(_) | Message::Pong(_) => None,
            Message::Close(_) => return ControlFlow::Break(()),
        };
        ControlFlow::Continue(reply)
    }

    fn take(&mut self, object: &Map<String, Value>) -> Option<Value> {
        let id = object.get("id").filter(|id| id.is_u64()).unwrap_or(&Value::Null);
        let mut keys = object.keys().filter(|key| *key != "id");
        let result = match (keys.next().map(String::as_str), keys.next()) {
            (Some(key), None) if self.role == Role::Watch && key != "watch" => Err(watch_only()),
            (Some("ack"), None) => self.acknowledge(&object["ack"]),
            (Some("show"), None) => self.show(&object["show"]),
            (Some("watch"), None) => self.watching.set(&object["watch"]),
            (Some("set"), None) => {
                return Some(match self.set(&object["set"]) {
                    Ok(accepted) => json!({ "reply": id, "accepted": accepted }),
                    Err(problem) => error_reply(id, &problem),
                });
            }
            _ => Err(unreadable()),
        };
        result.err().map(|problem| error_reply(id, &problem))
    }

    fn acknowledge(&mut self, index: &Value) -> Result<(), Problem> {
        let index = index_of(index).ok_or_else(|| bad_index("ack", index))?;
        // A row that is no longer shown is acknowledged all the same: nothing to do.
        if let Some(shown) = self.shown.get_mut(&index) {
            shown.unacknowledged = false;
        }
        Ok(())
    }

    fn show(&mut self, list: &Value) -> Result<(), Problem> {
        let list = list.as_array().filter(|list| list.len() <= SHOWN_MAX).ok_or_else(|| {
            let message = format!("\"show\" is not a list of at most {SHOWN_MAX} indices");
            Problem::bad("bad-value", "show", message, "send {\"show\": [0, 1]}")
        })?;
        let indices = list.iter().map(|each| index_of(each).ok_or_else(|| bad_index("show", each)));
        let indices = indices.collect::<Result<Vec<_>, _>>()?;
        let old = std::mem::take(&mut self.shown);
        let kept = |index| old.get(&index).copied().unwrap_or_default();
        self.shown = indices.into_iter().map(|index| (index, kept(index))).collect();
        Ok(())
    }

    /// `{"stream": NAME, KEY: VALUE}` or `{"link": NAME, KEY: VALUE}`.
    fn set(&self, set: &Value) -> Result<Value, Problem> {
        if self.role == Role::View {
            return Err(view_only());
        }
        let remedy = "send {\"set\": {\"stream\": \"NAME\", \"window\": \"1/5\"}}";
        let bad = |message: &str| Problem::bad("bad-value", "set", message, remedy);
        let mut rest = set.as_object().ok_or_else(|| bad("\"set\" is not an object"))?.clone();
        let (stream, link) = (rest.remove("stream"), rest.remove("link"));
        let name = |value: &Value| match value.as_str() {
            Some(name) => Ok(name.to_owned()),
            None => Err(bad("the name is not a text")),
        };
        let change = match (&stream, &link) {
            (Some(stream), None) => knobs::parse(Target::Stream(&name(stream)?), &rest)?,
            (None, Some(link)) => knobs::parse(Target::Link(&name(link)?), &rest)?,
            _ => return Err(bad("\"set\" names not one stream and not one link")),
        };
        change.set_knob(&*self.app.view)
    }
}

/// `[u16 stream index][u32 picture number][JPEG]`, big-endian. The number wraps; it only distinguishes
/// pictures.
fn picture(index: u16, number: u64, jpeg: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(6 + jpeg.len());
    message.extend_from_slice(&index.to_be_bytes());
    message.extend_from_slice(&(number as u32).to_be_bytes());
    message.extend_from_slice(jpeg);
    message
}

fn index_of(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|n| u16::try_from(n).ok())
}

fn bad_index(field: &str, value: &Value) -> Problem {
    let value = knobs::shorten(&value.to_string());
    let message = format!("{value} is not a stream's index");
    Problem::bad("bad-value", field, message, "count streams from 0, as in the last snapshot")
}

fn unreadable() -> Problem {
    let message = "the message is not one of those that clients send";
    let remedy = "send {\"ack\": INDEX}, {\"show\": [INDEX, ...]} or {\"set\": {...}, \"id\": N}";
    Problem::bad("bad-message", "", message, remedy)
}

fn error_reply(id: &Value, problem: &Problem) -> Value {
    json!({ "reply": id, "error": problem.json() })
}
