// A Java member of consumer groups, for groups shared with mqlet.
//
//   java Member.java NAMESRV_ADDR (GROUP TOPIC STRATEGY)...
//
// STRATEGY is AVG, AVG_BY_CIRCLE, CONSISTENT_HASH or MACHINE_ROOM_NEARBY (rooms are the last
// letters of client ids and of brokers' names; this member is in room "a"). Prints one line a call, as the guest
// `ledger` does: "ledger[times:queue:body …]". A body that starts with "fail" comes back.
// Every second in which its share of a topic changed it prints "TOPIC queues N". It leaves
// its groups when its standard input ends.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

public class Member {
  public static void main(String[] arguments) throws Exception {
    List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    for (int i = 1; i + 2 < arguments.length; i += 3) {
      consumers.add(start(arguments[0], arguments[i], arguments[i + 1], arguments[i + 2]));
    }
    System.out.println("started");
    System.out.flush();
    while (System.in.read() >= 0) {
      // Until the other side closes it.
    }
    consumers.forEach(DefaultMQPushConsumer::shutdown);
    System.out.println("left the group");
    Runtime.getRuntime().halt(0);
  }

  static AllocateMessageQueueStrategy strategy(String name) {
    return switch (name) {
      case "AVG" -> new AllocateMessageQueueAveragely();
      case "AVG_BY_CIRCLE" -> new AllocateMessageQueueAveragelyByCircle();
      case "CONSISTENT_HASH" -> new AllocateMessageQueueConsistentHash();
      case "MACHINE_ROOM_NEARBY" -> new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
          new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
              return lastLetter(queue.getBrokerName());
            }

            @Override
            public String consumerDeployIn(String clientId) {
              return lastLetter(clientId);
            }
          });
      default -> throw new IllegalArgumentException(name);
    };
  }

  static String lastLetter(String name) {
    return name.substring(name.length() - 1);
  }

  /** On a busy machine the client's start fails at its first late answer: tried again. */
  static DefaultMQPushConsumer start(String namesrv, String group, String topic, String strategy) throws Exception {
    for (int attempt = 1; ; attempt++) {
      try {
        return startOnce(namesrv, group, topic, strategy);
      } catch (Exception failure) {
        if (attempt == 5) {
          throw failure;
        }
        System.out.println("start failed: " + failure);
        Thread.sleep(1000);
      }
    }
  }

  static DefaultMQPushConsumer startOnce(String namesrv, String group, String topic, String strategy) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setMqClientApiTimeout(30_000);
    consumer.setNamesrvAddr(namesrv);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeMessageBatchMaxSize(32);
    consumer.setAllocateMessageQueueStrategy(strategy(strategy));
    if (strategy.equals("MACHINE_ROOM_NEARBY")) {
      consumer.setInstanceName("java-a");
    }
    consumer.subscribe(topic, "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      StringBuilder line = new StringBuilder();
      messages.forEach(m -> line.append(line.length() == 0 ? "ledger[" : " ").append(m.getReconsumeTimes()).append(':')
          .append(m.getQueueId()).append(':').append(new String(m.getBody(), StandardCharsets.UTF_8)));
      System.out.println(line.append(']'));
      boolean fails = messages.stream().anyMatch(m -> new String(m.getBody(), StandardCharsets.UTF_8).startsWith("fail"));
      return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    Thread watcher = new Thread(() -> {
      long before = -1;
      try {
        while (true) {
          long held = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().entrySet().stream()
              .filter(e -> e.getKey().getTopic().equals(topic) && !e.getValue().isDropped()).count();
          if (held != before) {
            System.out.println(topic + " queues " + held);
            before = held;
          }
          Thread.sleep(1000);
        }
      } catch (InterruptedException ended) {
        // The program ends.
      }
    });
    watcher.setDaemon(true);
    watcher.start();
    return consumer;
  }
}
