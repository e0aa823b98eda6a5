/* The behaviour that the orderly guests of every language share. The topic "refuse" is
   refused with "refuse refused"; a first body that starts with "!" suspends its queue
   for 250 ms, one with "?" for the configured time, one with "+" commits, one with "-"
   rolls back, the rest is success. */
#include <stdlib.h>
#include <string.h>

#include "orderly_listener.h"

/* A text that the host takes over and frees. */
static orderly_listener_string_t join(orderly_listener_string_t subject, const char *predicate) {
  orderly_listener_string_t text;
  size_t length = strlen(predicate);
  text.len = subject.len + length;
  text.ptr = malloc(text.len);
  memcpy(text.ptr, subject.ptr, subject.len);
  memcpy(text.ptr + subject.len, predicate, length);
  return text;
}

static exports_mqlet_listener_orderly_consume_status_t consume(uint8_t first) {
  exports_mqlet_listener_orderly_consume_status_t status = {
      .tag = EXPORTS_MQLET_LISTENER_ORDERLY_CONSUME_STATUS_SUCCESS};
  switch (first) {
  case '!':
    status.tag = EXPORTS_MQLET_LISTENER_ORDERLY_CONSUME_STATUS_SUSPEND_CURRENT_QUEUE_A_MOMENT;
    status.val.suspend_current_queue_a_moment.is_some = true;
    status.val.suspend_current_queue_a_moment.val = 250;
    break;
  case '?':
    status.tag = EXPORTS_MQLET_LISTENER_ORDERLY_CONSUME_STATUS_SUSPEND_CURRENT_QUEUE_A_MOMENT;
    break;
  case '+':
    status.tag = EXPORTS_MQLET_LISTENER_ORDERLY_CONSUME_STATUS_COMMIT;
    break;
  case '-':
    status.tag = EXPORTS_MQLET_LISTENER_ORDERLY_CONSUME_STATUS_ROLLBACK;
    break;
  }
  return status;
}

bool exports_mqlet_listener_orderly_consume_message(
    exports_mqlet_listener_orderly_list_message_t *messages,
    orderly_listener_list_u8_t *data,
    exports_mqlet_listener_orderly_batch_context_t *context,
    exports_mqlet_listener_orderly_consume_status_t *ret,
    orderly_listener_string_t *err) {
  bool refused = context->topic.len == 6 && memcmp(context->topic.ptr, "refuse", 6) == 0;
  if (refused) {
    *err = join(context->topic, " refused");
  } else {
    *ret = consume(messages->ptr[0].body.size ? data->ptr[messages->ptr[0].body.offset] : 0);
  }
  /* The arguments belong to the listener: not freeing them leaks every batch. */
  exports_mqlet_listener_orderly_list_message_free(messages);
  orderly_listener_list_u8_free(data);
  exports_mqlet_listener_orderly_batch_context_free(context);
  return !refused;
}
