-- Shared by the scripts that grant: set before them. Keys of one lock, all in one slot:
--   KEYS[1] L  the lock itself: a string, the owner, with an expiry; what other libraries' clients respect
--   KEYS[2] F  a hash: c newest token, o owner of it, n its try, m holder, g granted (ms), h its channel,
--              q newest place in the queue, s/S hand-overs in a row and since when, p until when (ms) the key is
--              left to clients that poll, b the last broken owner
--   KEYS[3] Q  waiters in order of arrival: a sorted set of owners
--   KEYS[4] W  a hash, owner -> what the waiter said of itself: "n alive until channel holder"
local L, F, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local time = call('TIME')
-- As text where it goes back to the server: making text of a large number costs more than a command does.
local micros = time[1] .. string.sub('00000' .. time[2], -6)
local millis = string.sub(micros, 1, -4)
local now = tonumber(millis)
local week = 604800000
-- How long the key is left to clients that poll: those that look ten times a second get it within seconds.
local pause = 25

-- Gives the lock to `owner` for `px` ms. The token is one more than the last and at least the time in
-- microseconds, so that it rises even when the counter was lost.
local function grant(owner, n, px, channel, holder, streak)
  local token, keep = micros, '604800000'
  local last = tonumber(call('HGET', F, 'c')) or 0
  if last >= tonumber(micros) then
    token = string.format('%.0f', last + 1)
    -- Long after the lock; by the counter where that lies ahead of the clock, so that a clock set back
    -- can't lower a token.
    keep = string.format('%.0f', math.floor((last + 1) / 1000) - now + week)
  end
  call('SET', L, owner, 'PX', px)
  call('HSET', F, 'c', token, 'o', owner, 'n', n, 'm', holder, 'g', millis, 'h', channel, 's', streak)
  call('PEXPIRE', F, keep)
  return token
end
