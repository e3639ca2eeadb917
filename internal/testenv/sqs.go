package testenv

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/testenv/elasticmq"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/moto"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var (
	sharedElasticMQ = shared.Server{
		Name: "elasticmq", Version: elasticmq.Version,
		Start: func(ctx context.Context) (shared.Instance, error) { return elasticmq.StartInMemory(ctx) },
	}
	sharedMoto = shared.Server{
		Name: "moto", Version: moto.Version,
		Start: func(ctx context.Context) (shared.Instance, error) { return moto.Start(ctx) },
	}
)

func init() {
	sharedElasticMQ.SuperviseIfAsked()
	sharedMoto.SuperviseIfAsked()
}

// SQSServer is a server with SQS's interface, or SQS itself. Its endpoint and region are
// all that a client needs beside credentials, which the SDK finds by itself: for servers
// of ours they are put into the environment of this process.
type SQSServer struct {
	endpoint, region string
	private          bool // its queues go with it
}

// SQS returns the server that the packages of this test run share. That is
//   - SQS of the region MILLPOND_TEST_SQS_REGION, with the credentials that the SDK
//     finds, if that is set alone; it costs money;
//   - the server at MILLPOND_TEST_SQS_ENDPOINT, if that is set;
//   - else an ElasticMQ that is started when it is first needed and ends by itself some
//     time after the last test.
//
// Use queues that NewQueue makes or QueueName names.
func SQS(tb testing.TB) *SQSServer {
	tb.Helper()
	endpoint, region := os.Getenv(elasticmq.EndpointVariable), os.Getenv(elasticmq.RegionVariable)
	switch {
	case endpoint != "":
		if region == "" {
			region = elasticmq.Region
		}
	case region != "":
	default:
		// Here, because what is wrong is easier to read than from the supervisor's log.
		if err := elasticmq.Install(tb.Context()); err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		// Not the test's context: the next test uses the server as well.
		url, err := sharedElasticMQ.Open(context.Background())
		if err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		endpoint, region = url, elasticmq.Region
	}
	return newSQSServer(endpoint, region)
}

// Moto returns the server with the interfaces of SQS and SNS that the packages of this
// test run share. It is started when it is first needed and ends by itself some time after
// the last test.
func Moto(tb testing.TB) *SQSServer {
	tb.Helper()
	if err := moto.Install(tb.Context()); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	endpoint, err := sharedMoto.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return newSQSServer(endpoint, moto.Region)
}

// PrivateSQSServer is an ElasticMQ of one test, which may do to it what it wants.
type PrivateSQSServer struct {
	*SQSServer
	*elasticmq.Server
}

// PrivateSQS starts an ElasticMQ of its own for this test, also when the tests are pointed
// at another server, and removes it when the test ends. If the test has failed, the end of
// the server's log is shown.
func PrivateSQS(tb testing.TB) *PrivateSQSServer {
	tb.Helper()
	server, err := elasticmq.Start(tb.Context())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the server's log ends with:%s", host.Tail(server.LogFile(), 0))
		}
		if err := server.Close(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	dummyCredentials()
	return &PrivateSQSServer{&SQSServer{endpoint: server.URL(), region: elasticmq.Region, private: true}, server}
}

// URL returns the URL of a broker on this server with the given scheme, such as "sqs".
func (s *PrivateSQSServer) URL(scheme string) string { return s.SQSServer.URL(scheme) }

func newSQSServer(endpoint, region string) *SQSServer {
	if endpoint != "" {
		dummyCredentials()
	}
	return &SQSServer{endpoint: endpoint, region: region}
}

// dummyCredentials gives this process credentials, which emulators ask for and do not
// look at, and keeps the SDK from looking for others on this machine and in its network.
// Tests that are pointed at AWS keep theirs.
var dummyCredentials = sync.OnceFunc(func() {
	if os.Getenv(elasticmq.EndpointVariable) == "" && os.Getenv(elasticmq.RegionVariable) != "" {
		return
	}
	for _, name := range []string{"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_SNS"} {
		_ = os.Unsetenv(name)
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "millpond", "AWS_SECRET_ACCESS_KEY": "millpond", // #nosec G101 -- nobody checks them
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		_ = os.Setenv(name, value)
	}
})

// Endpoint returns the address of the server, such as http://127.0.0.1:9324; "" for AWS.
func (s *SQSServer) Endpoint() string { return s.endpoint }

// Region returns the region that clients are to use.
func (s *SQSServer) Region() string { return s.region }

// IsAWS reports whether this is SQS itself, where time and requests cost money.
func (s *SQSServer) IsAWS() bool { return s.endpoint == "" }

// URL returns the URL of a broker on this server with the given scheme, such as "sqs".
func (s *SQSServer) URL(scheme string) string {
	query := url.Values{"region": {s.region}}
	if s.endpoint != "" {
		query.Set("endpoint", s.endpoint)
	}
	return scheme + "://?" + query.Encode()
}

// Config returns the configuration of a client of any service of this server. The client's
// connections end with the test.
func (s *SQSServer) Config(tb testing.TB) aws.Config {
	tb.Helper()
	// Clients are also made to clean up, when the test's context has ended.
	c, err := config.LoadDefaultConfig(context.WithoutCancel(tb.Context()), config.WithRegion(s.region))
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	transport := awshttp.NewBuildableClient().GetTransport()
	if client, ok := c.HTTPClient.(*awshttp.BuildableClient); ok { // it may know the certificates of AWS_CA_BUNDLE
		transport = client.GetTransport()
	}
	tb.Cleanup(transport.CloseIdleConnections)
	c.HTTPClient = &http.Client{Transport: transport}
	if s.endpoint != "" {
		c.BaseEndpoint = aws.String(s.endpoint)
	}
	return c
}

// Client returns a client of the server's SQS.
func (s *SQSServer) Client(tb testing.TB) *sqs.Client {
	tb.Helper()
	return sqs.NewFromConfig(s.Config(tb))
}

// QueuePrefix begins the names of all queues that tests make.
const QueuePrefix = "millpond-test-"

// QueueName returns a name for a queue that does not exist. When the test ends, all queues
// are deleted whose names begin with it, such as one for its dead letters. suffix ends the
// name: FIFO queues want ".fifo".
func (s *SQSServer) QueueName(tb testing.TB, suffix string) string {
	tb.Helper()
	name := QueuePrefix + uuid.NewString()
	if s.private {
		return name + suffix
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := deleteQueues(ctx, s.Client(tb), name); err != nil {
			tb.Logf("testenv: queues that begin with %s may be left behind: %v", name, err)
		}
	})
	return name + suffix
}

func deleteQueues(ctx context.Context, client *sqs.Client, prefix string) error {
	queues, err := client.ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: &prefix})
	if err != nil {
		return err
	}
	for _, url := range queues.QueueUrls {
		_, deleteErr := client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url})
		err = errors.Join(err, deleteErr)
	}
	return err
}

// NewQueue makes a queue, which is deleted when the test ends, and returns its name.
// attributes are those of CreateQueue, such as VisibilityTimeout; nil is allowed. With
// FifoQueue "true" it is a FIFO queue.
func (s *SQSServer) NewQueue(tb testing.TB, attributes map[string]string) string {
	tb.Helper()
	suffix := ""
	if strings.EqualFold(attributes[string(types.QueueAttributeNameFifoQueue)], "true") {
		suffix = ".fifo"
	}
	name := s.QueueName(tb, suffix)
	_, err := s.Client(tb).CreateQueue(tb.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		tb.Fatalf("testenv: create the queue %s: %v", name, err)
	}
	return name
}
