// A Java member of an orderly consumer group, for groups shared with mqlet.
//
//   java OrderlyMember.java NAMESRV_ADDR GROUP TOPIC
//
// Prints one line a message: "UNIX_MS ledger[times:queue:body]". It leaves its group when
// its standard input ends, and says when: "UNIX_MS left the group".
//
//   java OrderlyMember.java NAMESRV_ADDR --feed TOPIC QUEUES COUNT PAUSE_MS
//
// Sends the numbers below COUNT, each to the queue number modulo QUEUES.

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class OrderlyMember {
  public static void main(String[] arguments) throws Exception {
    if (arguments[1].equals("--feed")) {
      feed(arguments);
      return;
    }
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
    consumer.setNamesrvAddr(arguments[0]);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(arguments[2], "*");
    consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
      messages.forEach(m -> say("ledger[" + m.getReconsumeTimes() + ':' + m.getQueueId() + ':'
          + new String(m.getBody(), StandardCharsets.UTF_8) + ']'));
      return ConsumeOrderlyStatus.SUCCESS;
    });
    consumer.start();
    say("started");
    while (System.in.read() >= 0) {
      // Until the other side closes it.
    }
    consumer.shutdown();
    say("left the group");
    Runtime.getRuntime().halt(0);
  }

  static void feed(String[] arguments) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("P_orderly_feed");
    producer.setNamesrvAddr(arguments[0]);
    producer.setMqClientApiTimeout(20_000);
    producer.start();
    int queues = Integer.parseInt(arguments[3]);
    for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
      Message message = new Message(arguments[2], Integer.toString(number).getBytes(StandardCharsets.UTF_8));
      producer.send(message, (all, m, n) -> all.get((Integer) n % queues), number, 20_000);
      Thread.sleep(Integer.parseInt(arguments[5]));
    }
    say("fed");
    Runtime.getRuntime().halt(0);
  }

  static synchronized void say(String line) {
    System.out.println(System.currentTimeMillis() + " " + line);
    System.out.flush();
  }
}
