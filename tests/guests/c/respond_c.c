/* The behaviour that the guests of every language share. The topic "refuse" is
   refused with "refuse refused"; a body that starts with "!" is dead-lettered with
   "ID is malformed", one with "?" comes back at delay level 3, the rest is done. */
#include <stdlib.h>
#include <string.h>

#include "concurrent_listener.h"

typedef exports_mqlet_listener_concurrent_outcome_t outcome_t;

/* A text that the host takes over and frees. */
static concurrent_listener_string_t join(const uint8_t *subject, size_t size, const char *predicate) {
  concurrent_listener_string_t text;
  size_t length = strlen(predicate);
  text.len = size + length;
  text.ptr = malloc(text.len);
  memcpy(text.ptr, subject, size);
  memcpy(text.ptr + size, predicate, length);
  return text;
}

static outcome_t consume(const exports_mqlet_listener_concurrent_message_t *message, const uint8_t *data) {
  outcome_t outcome = {.tag = EXPORTS_MQLET_LISTENER_CONCURRENT_OUTCOME_DONE};
  uint8_t first = message->body.size ? data[message->body.offset] : 0;
  if (first == '!') {
    outcome.tag = EXPORTS_MQLET_LISTENER_CONCURRENT_OUTCOME_DEAD_LETTER;
    outcome.val.dead_letter = join(data + message->message_id.offset, message->message_id.size, " is malformed");
  } else if (first == '?') {
    outcome.tag = EXPORTS_MQLET_LISTENER_CONCURRENT_OUTCOME_RECONSUME_LATER;
    outcome.val.reconsume_later.is_some = true;
    outcome.val.reconsume_later.val = 3;
  }
  return outcome;
}

bool exports_mqlet_listener_concurrent_consume_message(
    exports_mqlet_listener_concurrent_list_message_t *messages,
    concurrent_listener_list_u8_t *data,
    exports_mqlet_listener_concurrent_batch_context_t *context,
    exports_mqlet_listener_concurrent_consume_status_t *ret,
    concurrent_listener_string_t *err) {
  bool refused = context->topic.len == 6 && memcmp(context->topic.ptr, "refuse", 6) == 0;
  if (refused) {
    *err = join(context->topic.ptr, context->topic.len, " refused");
  } else {
    ret->tag = EXPORTS_MQLET_LISTENER_CONCURRENT_CONSUME_STATUS_EACH;
    ret->val.each.len = messages->len;
    ret->val.each.ptr = calloc(messages->len, sizeof(outcome_t));
    for (size_t i = 0; i < messages->len; i++) {
      ret->val.each.ptr[i] = consume(&messages->ptr[i], data->ptr);
    }
  }
  /* The arguments belong to the listener: not freeing them leaks every batch. */
  exports_mqlet_listener_concurrent_list_message_free(messages);
  concurrent_listener_list_u8_free(data);
  exports_mqlet_listener_concurrent_batch_context_free(context);
  return !refused;
}
