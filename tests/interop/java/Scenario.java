// One program, run against a real RocketMQ and against the embedded broker: what
// it prints must be the same on both. It uses the stock producer and push consumer.
//
//   java Scenario.java NAMESRV_ADDR PREFIX
//
// PREFIX makes topics and groups of this run unique; it never appears in the output.
// The delay levels of the broker should be short (1 s each), and the client's periods
// are shortened below, so that a run takes seconds. Exit status 1: a wait timed out.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Scenario {
  static String namesrv;
  static String prefix;

  public static void main(String[] arguments) throws Exception {
    namesrv = arguments[0];
    prefix = arguments[1];
    System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
    try {
      DefaultMQProducer producer = new DefaultMQProducer(prefix + "-producer");
      producer.setNamesrvAddr(namesrv);
      producer.setSendMsgTimeout(20000);
      producer.setPollNameServerInterval(1000);
      producer.start();
      sending(producer);
      tagFilter(producer);
      retry(producer);
      deadLetter(producer);
      delayed(producer);
      membership(producer);
      producer.shutdown();
      say("scenario complete");
      Runtime.getRuntime().halt(0);
    } catch (Throwable failure) {
      failure.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }

  /** A new topic is made by the first send; a batch has consecutive offsets. */
  static void sending(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-send";
    SendResult first = producer.send(message(topic, "TagA", "one"));
    say("send single %s offset %d", first.getSendStatus(), first.getQueueOffset());
    List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
    say("send queues %d", queues.size());
    MessageQueue other = queues.get((first.getMessageQueue().getQueueId() + 1) % queues.size());
    List<Message> batch = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      batch.add(message(topic, "TagB", "batch-" + i));
    }
    SendResult result = producer.send(batch, other);
    say("send batch %s offset %d ids %d", result.getSendStatus(), result.getQueueOffset(),
        result.getOffsetMsgId().split(",").length);
    producer.sendOneway(message(topic, "TagC", "oneway"), other);
    await("the one-way message", () -> maxOffset(producer, other) == 4);
    say("send oneway stored");
    try {
      producer.send(message("SCHEDULE_TOPIC_XXXX", "TagA", "forbidden"));
      say("send to a system topic accepted");
    } catch (MQBrokerException refused) {
      say("send to a system topic refused %d", refused.getResponseCode());
    } catch (Exception refused) {
      say("send to a system topic refused by the client");
    }
    Set<String> bodies = ConcurrentHashMap.newKeySet();
    DefaultMQPushConsumer consumer = consumer("send", topic, "*", messages -> {
      messages.forEach(m -> bodies.add(body(m)));
      return true;
    });
    await("all sent messages", () -> bodies.size() == 5);
    say("send consumed %s", new TreeSet<>(bodies));
    consumer.shutdown();
  }

  static void tagFilter(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-tag";
    // Aa and BB have one hash code: the client must tell them apart.
    String[] tags = {"TagA", "TagB", "Aa", "BB", null};
    for (int i = 0; i < 50; i++) {
      producer.send(message(topic, tags[i % tags.length], tags[i % tags.length] + "-" + i));
    }
    Set<String> bodies = ConcurrentHashMap.newKeySet();
    DefaultMQPushConsumer consumer = consumer("tag", topic, "TagA || Aa", messages -> {
      messages.forEach(m -> bodies.add(body(m)));
      return true;
    });
    await("the filtered messages", () -> bodies.size() >= 20);
    Map<String, Integer> counts = new TreeMap<>();
    bodies.forEach(b -> counts.merge(b.substring(0, b.indexOf('-')), 1, Integer::sum));
    say("tag filter %s", counts);
    consumer.shutdown();
  }

  static void retry(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-retry";
    List<String> attempts = Collections.synchronizedList(new ArrayList<>());
    DefaultMQPushConsumer consumer = consumer("retry", topic, "*", messages -> {
      for (MessageExt message : messages) {
        attempts.add(body(message) + " " + message.getReconsumeTimes() + " " + message.getTopic().equals(topic)
            + " " + (message.getProperty("ORIGIN_MESSAGE_ID") != null));
        if (message.getReconsumeTimes() < 2) {
          return false;
        }
      }
      return true;
    });
    producer.send(message(topic, "TagA", "twice"));
    await("two retries", () -> attempts.size() >= 3);
    say("retry %s", attempts);
    consumer.shutdown();
  }

  static void deadLetter(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-poison";
    List<String> attempts = Collections.synchronizedList(new ArrayList<>());
    DefaultMQPushConsumer consumer = newConsumer("poison", topic, "*", messages -> {
      messages.forEach(m -> attempts.add(body(m) + " " + m.getReconsumeTimes()));
      return false;
    });
    consumer.setMaxReconsumeTimes(1);
    consumer.start();
    producer.send(message(topic, "TagA", "poison"));
    await("the last attempt", () -> attempts.size() >= 2);
    List<String> dead = Collections.synchronizedList(new ArrayList<>());
    DefaultMQPushConsumer undertaker = consumer("undertaker", "%DLQ%" + group("poison"), "*", messages -> {
      messages.forEach(m -> dead.add(body(m) + " " + m.getTags() + " " + topic.equals(m.getProperty("RETRY_TOPIC"))
          + " " + (m.getProperty("ORIGIN_MESSAGE_ID") != null)));
      return true;
    });
    await("the dead letter", () -> dead.size() >= 1);
    say("dead letter after %s: %s", attempts, dead);
    consumer.shutdown();
    undertaker.shutdown();
  }

  static void delayed(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-delay";
    List<String> came = Collections.synchronizedList(new ArrayList<>());
    DefaultMQPushConsumer consumer = consumer("delay", topic, "*", messages -> {
      messages.forEach(m -> came.add(body(m) + " late " + (m.getStoreTimestamp() - m.getBornTimestamp() >= 900)));
      return true;
    });
    Message message = message(topic, "TagA", "later");
    message.setDelayTimeLevel(2);
    producer.send(message);
    await("the delayed message", () -> came.size() >= 1);
    say("delayed %s", came);
    consumer.shutdown();
  }

  /** Two members share four queues; when one leaves, the other has all of them. */
  static void membership(DefaultMQProducer producer) throws Exception {
    String topic = prefix + "-members";
    producer.send(message(topic, "TagA", "first"));
    Set<String> bodies = ConcurrentHashMap.newKeySet();
    Listener listener = messages -> {
      messages.forEach(m -> bodies.add(body(m)));
      return true;
    };
    DefaultMQPushConsumer one = consumer("members", topic, "*", listener);
    await("all queues at one member", () -> held(one, topic) == 4);
    say("members alone %d", held(one, topic));
    DefaultMQPushConsumer two = newConsumer("members", topic, "*", listener);
    two.setInstanceName("two");
    two.start();
    await("the queues divided", () -> held(one, topic) == 2 && held(two, topic) == 2);
    say("members together %d %d", held(one, topic), held(two, topic));
    two.shutdown();
    await("all queues back", () -> held(one, topic) == 4);
    say("members alone again %d", held(one, topic));
    for (int i = 0; i < 20; i++) {
      producer.send(message(topic, "TagA", "m" + i));
    }
    await("messages after the move", () -> bodies.size() == 21);
    say("members consumed %d", bodies.size());
    one.shutdown();
  }

  static int held(DefaultMQPushConsumer consumer, String topic) {
    return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().entrySet().stream()
        .filter(e -> e.getKey().getTopic().equals(topic) && !e.getValue().isDropped()).count();
  }

  interface Listener {
    boolean consume(List<MessageExt> messages);
  }

  static DefaultMQPushConsumer newConsumer(String name, String topic, String expression, Listener listener) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group(name));
    consumer.setNamesrvAddr(namesrv);
    consumer.setPollNameServerInterval(1000);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(topic, expression);
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
        listener.consume(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
    return consumer;
  }

  static DefaultMQPushConsumer consumer(String name, String topic, String expression, Listener listener) throws Exception {
    DefaultMQPushConsumer consumer = newConsumer(name, topic, expression, listener);
    consumer.start();
    return consumer;
  }

  static long maxOffset(DefaultMQProducer producer, MessageQueue queue) {
    try {
      return producer.maxOffset(queue);
    } catch (Exception notYet) {
      return -1;
    }
  }

  static String group(String name) {
    return prefix + "-" + name;
  }

  static Message message(String topic, String tag, String body) {
    return new Message(topic, tag, body.getBytes(StandardCharsets.UTF_8));
  }

  static String body(MessageExt message) {
    return new String(message.getBody(), StandardCharsets.UTF_8);
  }

  static void say(String format, Object... values) {
    System.out.println(String.format(format, values));
  }

  static void await(String what, BooleanSupplier condition) throws Exception {
    long deadline = System.nanoTime() + 120_000_000_000L;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException("waited 120 s for " + what);
      }
      Thread.sleep(20);
    }
  }
}
