//! What Redis runs in one step. `KEYS`: values, names and counts; `ARGV`: the key, what a
//! key costs beside itself, and then what each script says.
//!
//! Numbers of Lua are exact up to 2^53, which is more than any quota; the numbers of guests
//! are 64 bits, so they are added byte by byte.

use wasm::KeyValueError;

use crate::reach::quota::Quota;

/// `ARGV[3]`, `ARGV[4]`: how many keys and bytes there may be; `ARGV[5]`: the value.
/// Answers with an outcome.
pub(super) const SET: &str = r"
local there = redis.call('HEXISTS', KEYS[1], ARGV[1])
local keys = tonumber(redis.call('HGET', KEYS[3], 'keys') or 0) + 1 - there
local bytes = tonumber(redis.call('HGET', KEYS[3], 'bytes') or 0) + #ARGV[5]
if there == 1 then
  bytes = bytes - redis.call('HSTRLEN', KEYS[1], ARGV[1])
else
  bytes = bytes + #ARGV[1] + tonumber(ARGV[2])
  if keys > tonumber(ARGV[3]) then return 1 end
end
if bytes > tonumber(ARGV[4]) then return 2 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[5])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('HSET', KEYS[3], 'keys', string.format('%.0f', keys), 'bytes', string.format('%.0f', bytes))
return 0
";

/// Nothing more.
pub(super) const DELETE: &str = r"
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local bytes = redis.call('HSTRLEN', KEYS[1], ARGV[1]) + #ARGV[1] + tonumber(ARGV[2])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HINCRBY', KEYS[3], 'keys', -1)
redis.call('HINCRBY', KEYS[3], 'bytes', string.format('%.0f', -bytes))
return 0
";

/// `ARGV[3]`, `ARGV[4]`: how many keys and bytes there may be; `ARGV[5]`: what is added,
/// eight bytes, the lowest first. Answers with an outcome and the sum.
pub(super) const INCREMENT: &str = r"
local old = redis.call('HGET', KEYS[1], ARGV[1])
if old and #old ~= 8 then return {3, ''} end
local sum, carry = {}, 0
for place = 1, 8 do
  local digit = string.byte(ARGV[5], place) + carry
  if old then digit = digit + string.byte(old, place) end
  sum[place] = string.char(digit % 256)
  carry = math.floor(digit / 256)
end
if carry > 0 then return {4, ''} end
local value = table.concat(sum)
if not old then
  local keys = tonumber(redis.call('HGET', KEYS[3], 'keys') or 0) + 1
  local bytes = tonumber(redis.call('HGET', KEYS[3], 'bytes') or 0) + 8 + #ARGV[1] + tonumber(ARGV[2])
  if keys > tonumber(ARGV[3]) then return {1, ''} end
  if bytes > tonumber(ARGV[4]) then return {2, ''} end
  redis.call('ZADD', KEYS[2], 0, ARGV[1])
  redis.call('HSET', KEYS[3], 'keys', string.format('%.0f', keys), 'bytes', string.format('%.0f', bytes))
end
redis.call('HSET', KEYS[1], ARGV[1], value)
return {0, value}
";

/// What the first number of an answer means.
pub(super) fn outcome(number: i64, quota: Quota) -> Result<(), KeyValueError> {
    match number {
        0 => Ok(()),
        1 => Err(KeyValueError::TooManyKeys(quota.keys)),
        2 => Err(KeyValueError::TooManyBytes(quota.bytes)),
        3 => Err(KeyValueError::NotANumber),
        4 => Err(KeyValueError::Overflow),
        other => Err(KeyValueError::Storage(format!("Redis answered {other}"))),
    }
}
