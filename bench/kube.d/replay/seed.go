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
	"sync/atomic"
	"time"
)

// seedPods creates the corpus's pods, all in the namespace default, with 16 clients; prints {"created", "seconds"}.
func seedPods(flags *flag.FlagSet) {
	server := flags.String("server", "", "https://…")
	ca := flags.String("ca", "", "file with its CA")
	token := flags.String("token", "", "who we are")
	objects := flags.Int("objects", 10000, "how many")
	flags.Parse(os.Args[2:])
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust(*ca), ForceAttemptHTTP2: true}, Timeout: 30 * time.Second}
	kind := newKind("", "v1", "pods", "Pod", "pod.json")
	start := time.Now()
	var next atomic.Int64
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < *objects; i = int(next.Add(1)) - 1 {
				if err := create(client, *server, *token, kind.full.render(nil, i, 0, 0)); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	running.Wait()
	print(map[string]any{"created": *objects, "seconds": time.Since(start).Seconds()})
}

func create(client *http.Client, server, token string, rendered []byte) error {
	var pod map[string]any
	if err := json.Unmarshal(rendered, &pod); err != nil {
		return err
	}
	metadata := pod["metadata"].(map[string]any)
	metadata["namespace"] = "default"
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "generateName"} { // the server's own
		delete(metadata, field)
	}
	delete(pod, "status")
	body, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, server+"/api/v1/namespaces/default/pods", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("create pod: %s: %.300s", response.Status, text)
	}
	return nil
}
