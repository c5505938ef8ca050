package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"
)

// load is an open-loop generator: every request has its time, and its latency counts from that time, also when the connection was still
// busy then. It keeps `connections` HTTP/1.1 connections and prints {"latencies_us", "errors"}.
func load(flags *flag.FlagSet) {
	url := flags.String("url", "", "of the webhook")
	ca := flags.String("ca", "", "file with its CA")
	rate := flags.Int("rate", 500, "requests a second")
	connections := flags.Int("connections", 50, "kept alive")
	seconds := flags.Int("seconds", 5, "how long")
	flags.Parse(os.Args[2:])

	body := admissionReview()
	clients := make([]*http.Client, *connections)
	for i := range clients {
		transport := &http.Transport{TLSClientConfig: trust(*ca), MaxConnsPerHost: 1} // not asked for HTTP/2, Go does not offer it
		clients[i] = &http.Client{Transport: transport, Timeout: 10 * time.Second}
		for range 4 { // connected and warm before the time counts
			if err := review(clients[i], *url, body); err != nil {
				log.Fatal(err)
			}
		}
	}

	total, gap := *rate**seconds, time.Second/time.Duration(*rate)
	latencies, errors := make([]int64, total), make([]int, *connections)
	start := time.Now().Add(100 * time.Millisecond)
	var running sync.WaitGroup
	for c, client := range clients {
		running.Go(func() {
			for i := c; i < total; i += *connections {
				due := start.Add(time.Duration(i) * gap)
				time.Sleep(time.Until(due))
				if review(client, *url, body) != nil {
					errors[c]++
				}
				latencies[i] = time.Since(due).Microseconds()
			}
		})
	}
	running.Wait()
	sum := 0
	for _, n := range errors {
		sum += n
	}
	print(map[string]any{"latencies_us": latencies, "errors": sum})
}

func review(client *http.Client, url string, body []byte) error {
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Response struct {
			Allowed bool `json:"allowed"`
		} `json:"response"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	io.Copy(io.Discard, response.Body)
	if !answer.Response.Allowed {
		return fmt.Errorf("%s: not allowed", response.Status)
	}
	return nil
}

// admissionReview asks about the creation of the corpus's first pod.
func admissionReview() []byte {
	pod := newKind("", "v1", "pods", "Pod", "pod.json").full.render(nil, 0, firstVersion, 0)
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",`+
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},`+
		`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},`+
		`"name":"web","namespace":"team-00","operation":"CREATE","userInfo":{"username":"admin","groups":["system:authenticated"]},`+
		`"object":%s,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, pod)
}
