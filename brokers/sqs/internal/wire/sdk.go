package wire

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	sns "github.com/aws/aws-sdk-go-v2/service/sns/types"
	sqs "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// FromSQS is Decode for a message from the SDK.
func FromSQS(m *sqs.Message) (*message.Message, error) {
	attributes := make(map[string]Attribute, len(m.MessageAttributes))
	for name, value := range m.MessageAttributes {
		attributes[name] = Attribute{Type: aws.ToString(value.DataType), Text: aws.ToString(value.StringValue), Binary: value.BinaryValue}
	}
	return Decode(aws.ToString(m.Body), attributes)
}

// ToSQS converts attributes of Encode to the SDK's type for a queue.
func ToSQS(attributes map[string]Attribute) map[string]sqs.MessageAttributeValue {
	values := make(map[string]sqs.MessageAttributeValue, len(attributes))
	for name, a := range attributes {
		values[name] = sqs.MessageAttributeValue{DataType: aws.String(a.Type), StringValue: aws.String(a.Text)}
	}
	return values
}

// ToSNS converts attributes of Encode to the SDK's type for a topic.
func ToSNS(attributes map[string]Attribute) map[string]sns.MessageAttributeValue {
	values := make(map[string]sns.MessageAttributeValue, len(attributes))
	for name, a := range attributes {
		values[name] = sns.MessageAttributeValue{DataType: aws.String(a.Type), StringValue: aws.String(a.Text)}
	}
	return values
}
