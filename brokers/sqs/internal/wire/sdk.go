package wire

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	sns "github.com/aws/aws-sdk-go-v2/service/sns/types"
	sqs "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// FromSQS is Decode for a message as the SDK has received it.
func FromSQS(m *sqs.Message) (*message.Message, error) {
	attributes := make(map[string]Attribute, len(m.MessageAttributes))
	for name, value := range m.MessageAttributes {
		attributes[name] = Attribute{Type: aws.ToString(value.DataType), Text: aws.ToString(value.StringValue), Binary: value.BinaryValue}
	}
	return Decode(aws.ToString(m.Body), attributes)
}

// ToSQS returns what Encode has made as the SDK sends them to a queue.
func ToSQS(attributes map[string]Attribute) map[string]sqs.MessageAttributeValue {
	values := make(map[string]sqs.MessageAttributeValue, len(attributes))
	for name, a := range attributes {
		values[name] = sqs.MessageAttributeValue{DataType: aws.String(a.Type), StringValue: aws.String(a.Text)}
	}
	return values
}

// ToSNS returns what Encode has made as the SDK publishes them to a topic.
func ToSNS(attributes map[string]Attribute) map[string]sns.MessageAttributeValue {
	values := make(map[string]sns.MessageAttributeValue, len(attributes))
	for name, a := range attributes {
		values[name] = sns.MessageAttributeValue{DataType: aws.String(a.Type), StringValue: aws.String(a.Text)}
	}
	return values
}
