//! The kube-rs side of bench/kube. ../README.md says what each mode does and prints.

mod checkpoint;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use checkpoint::Checkpoint;
use futures::{Stream, StreamExt, TryStreamExt, future};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config as ControllerConfig, Controller};
use kube::runtime::reflector::{self, Lookup};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::io::AsyncReadExt;

const SENT: &str = "bench.holdfast.dev/sent";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let mode = value("--mode").unwrap_or_default();
    let objects: usize = value("--objects").map_or(10000, |text| text.parse().expect("--objects N"));
    let tuned = arguments.iter().any(|a| a == "--tuned");

    let client = Client::try_default().await?;
    let config = if tuned { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
    match mode.as_str() {
        "empty" => {
            println!("{}", json!({}));
            end_of_input().await;
        }
        "metadata" => keep(watcher(Api::<PartialObjectMeta<Pod>>::all(client), config), tuned, objects, start).await,
        "full" => keep(watcher(Api::<Checkpoint>::all(client), config), tuned, objects, start).await,
        "reconcile" | "events" => reconcile(client, config, objects, start, mode == "events").await,
        _ => return Err(format!("no mode {mode:?}").into()),
    }
    std::process::exit(0)
}

async fn end_of_input() {
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}

/// Fills a store from `events` and keeps it current; nothing reads it.
async fn keep<K, S>(events: S, tuned: bool, objects: usize, start: Instant)
where
    K: kube::Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone,
    S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
{
    let (reader, writer) = reflector::store::<K>();
    let events = events.default_backoff().modify(move |object: &mut K| {
        if tuned {
            object.managed_fields_mut().clear();
        }
    });
    tokio::spawn(events.reflect(writer).for_each(|_| future::ready(())));
    reader.wait_until_ready().await.expect("the watcher has ended");
    let synced = start.elapsed();
    while reader.len() < objects {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("{}", json!({"objects": reader.len(), "synced_s": synced.as_secs_f64()}));
    end_of_input().await;
}

#[derive(Default)]
struct Seen {
    first: Option<Instant>,
    last: Option<Instant>,
    done: usize,
    latencies: Vec<i64>,
}

struct Reader {
    seen: Mutex<Seen>,
    objects: usize,
    drained: tokio::sync::Notify,
}

/// Only reads its object, which kube-rs takes from the store.
async fn read(object: Arc<Checkpoint>, context: Arc<Reader>) -> Result<Action, kube::Error> {
    let now = Instant::now();
    let mut seen = context.seen.lock().unwrap();
    seen.first.get_or_insert(now);
    let sent: i64 = object.annotations().get(SENT).and_then(|text| text.parse().ok()).unwrap_or(0);
    if sent > 0 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        seen.latencies.push((wall - sent) / 1000);
    }
    seen.done += 1;
    if seen.done == context.objects {
        seen.last = Some(Instant::now());
        context.drained.notify_one();
    }
    Ok(Action::await_change())
}

async fn reconcile(client: Client, config: watcher::Config, objects: usize, start: Instant, events: bool) {
    let context = Arc::new(Reader { seen: Mutex::default(), objects, drained: tokio::sync::Notify::new() });
    let controller = Controller::new(Api::<Checkpoint>::all(client), config)
        .with_config(ControllerConfig::default().concurrency(1))
        .run(read, |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(1)), context.clone());
    tokio::spawn(controller.map_ok(|_| ()).for_each(|_| future::ready(())));
    context.drained.notified().await;
    {
        let seen = context.seen.lock().unwrap();
        let last = seen.last.unwrap();
        let (seconds, cold) = ((last - seen.first.unwrap()).as_secs_f64(), (last - start).as_secs_f64());
        println!("{}", json!({"objects": objects, "seconds": seconds, "cold_start_s": cold}));
    }
    end_of_input().await;
    if events {
        println!("{}", json!({"latencies_us": context.seen.lock().unwrap().latencies}));
    }
}
