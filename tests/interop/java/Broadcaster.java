// A Java member of a broadcasting group.
//
//   java Broadcaster.java NAMESRV_ADDR GROUP TOPIC
//
// Prints one line a call, as the guest `ledger` does: "ledger[times:queue:body …]". It
// leaves its group when its standard input ends.

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

public class Broadcaster {
  public static void main(String[] arguments) throws Exception {
    // Offsets are kept under the user's home, whatever the cluster: those of the run before
    // would pass over messages of this one.
    System.setProperty("rocketmq.client.localOffsetStoreDir", Files.createTempDirectory("offsets").toString());
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
    consumer.setNamesrvAddr(arguments[0]);
    consumer.setMessageModel(MessageModel.BROADCASTING);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeMessageBatchMaxSize(32);
    consumer.subscribe(arguments[2], "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      StringBuilder line = new StringBuilder();
      messages.forEach(m -> line.append(line.length() == 0 ? "ledger[" : " ").append(m.getReconsumeTimes()).append(':')
          .append(m.getQueueId()).append(':').append(new String(m.getBody(), StandardCharsets.UTF_8)));
      System.out.println(line.append(']'));
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
    System.out.println("started");
    System.out.flush();
    while (System.in.read() >= 0) {
      // Until the other side closes it.
    }
    consumer.shutdown();
    System.out.println("left the group");
    Runtime.getRuntime().halt(0);
  }
}
