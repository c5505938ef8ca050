;; A JVM: a heap of maps that is checked and changed, threads, a scheduled executor, code that the JIT compiles, garbage collection.
(import '(java.util.concurrent Executors TimeUnit ConcurrentHashMap))
(def nonce (str (random-uuid)))
(def errors (atom []))
(defn expect [what value wanted] (when (and (not= value wanted) (< (count @errors) 5)) (swap! errors conj (str what ": " value ", not " wanted))))
(def rows (ConcurrentHashMap.))
(dotimes [i 50000] (.put rows i (apply str (repeat 4 (str "row " i " ")))))
(def blob (let [b (byte-array (* 64 1024 1024))] (.nextBytes (java.util.Random. 7) b) b))
(def blob-hash (java.util.Arrays/hashCode ^bytes blob))
(def counts (vec (repeatedly 16 #(java.util.concurrent.atomic.AtomicLong.))))
(def ticks (java.util.concurrent.atomic.AtomicLong.))
(defn fib [^long n] (if (< n 2) n (+ (long (fib (- n 1))) (long (fib (- n 2))))))
(doseq [c counts]
  (doto (Thread. (fn [] (while true
                          (expect "fib" (fib 15) 610)
                          (let [garbage (mapv str (range 500))] (expect "garbage" (count garbage) 500))
                          (.incrementAndGet ^java.util.concurrent.atomic.AtomicLong c)
                          (Thread/sleep 20))))
    (.setDaemon true) (.start)))
(.scheduleAtFixedRate (Executors/newScheduledThreadPool 1) (fn [] (.incrementAndGet ticks)) 50 50 TimeUnit/MILLISECONDS)
(loop [n 0]
  (let [i (mod (* n 97) 50000)]
    (expect "row" (.get rows i) (apply str (repeat 4 (str "row " i " ")))))
  (when (zero? (mod n 50)) (expect "blob" (java.util.Arrays/hashCode ^bytes blob) blob-hash) (System/gc))
  (let [text (str "{\"same\": {\"nonce\": \"" nonce "\", \"rows\": " (.size rows) "}, \"grows\": {\"slowest of 16 threads\": " (apply min (map #(.get ^java.util.concurrent.atomic.AtomicLong %) counts))
                  ", \"ticks\": " (.get ticks) ", \"loop\": " n "}, \"errors\": [" (apply str (interpose ", " (map pr-str @errors))) "]}")]
    (spit "/run/.now" text)
    (.renameTo (java.io.File. "/run/.now") (java.io.File. "/run/now")))
  (Thread/sleep 50)
  (recur (inc n)))
