// A Java member of a consumer group, for groups shared with mqlet.
//
//   java Member.java NAMESRV_ADDR GROUP TOPIC
//
// Prints one line a message: its body and its queue id. Every second that its share
// changed it prints "queues N". It leaves the group when its standard input ends.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class Member {
  public static void main(String[] arguments) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
    consumer.setNamesrvAddr(arguments[0]);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeMessageBatchMaxSize(32);
    consumer.subscribe(arguments[2], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      StringBuilder lines = new StringBuilder();
      messages.forEach(m -> lines.append("message ").append(new String(m.getBody(), StandardCharsets.UTF_8))
          .append(' ').append(m.getQueueId()).append('\n'));
      System.out.print(lines);
      System.out.flush();
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    Thread watcher = new Thread(() -> {
      long before = -1;
      try {
        while (true) {
          long held = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().entrySet().stream()
              .filter(e -> e.getKey().getTopic().equals(arguments[2]) && !e.getValue().isDropped()).count();
          if (held != before) {
            System.out.println("queues " + held);
            System.out.flush();
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
    while (System.in.read() >= 0) {
      // Until the other side closes it.
    }
    consumer.shutdown();
    System.out.println("left the group");
    Runtime.getRuntime().halt(0);
  }
}
