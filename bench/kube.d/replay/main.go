// The other side of bench/kube: `replay serve` stands for an API server with a large corpus and does nothing beyond sending it, so that
// only its client is measured; `replay load` asks an admission webhook; `replay seed` creates the corpus's pods at a real API server.
// Standard library only. Each subcommand ends when its standard input does, so that none outlives who started it.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: replay serve|load|seed [flags]")
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	switch os.Args[1] {
	case "serve":
		serve(flags)
	case "load":
		load(flags)
	case "seed":
		seedPods(flags)
	default:
		log.Fatalf("replay has no %q", os.Args[1])
	}
}

// serve prints {"url", "control"} when it listens.
func serve(flags *flag.FlagSet) {
	objects := flags.Int("objects", 10000, "objects of each kind")
	cert := flags.String("cert", "", "certificate")
	key := flags.String("key", "", "its key")
	flags.Parse(os.Args[2:])
	a := &api{stores: []*store{
		newStore(newKind("", "v1", "pods", "Pod", "pod.json"), *objects),
		newStore(newKind("holdfast.dev", "v1alpha1", "checkpoints", "Checkpoint", "checkpoint.json"), *objects),
	}}
	public, control := listen(), listen()
	go func() {
		server := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
		log.Fatal(server.ServeTLS(public, *cert, *key)) // HTTP/2 where the client offers it
	}()
	fmt.Printf("{\"url\":\"https://%s\",\"control\":\"http://%s\"}\n", public.Addr(), control.Addr())
	log.Fatal(http.Serve(control, a.control()))
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

// trust is for clients of a server whose CA is in `file`.
func trust(file string) *tls.Config {
	pem, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots}
}

func print(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		log.Fatal(err)
	}
}
