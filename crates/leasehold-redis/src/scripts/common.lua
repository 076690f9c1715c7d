-- Shared by the scripts that grant: set before them. Keys of one lock, all in one slot:
--   KEYS[1] L  the lock itself: a string, the owner, with an expiry; what other libraries' clients respect
--   KEYS[2] F  the newest grant, a string: "token owner n granted channel streak since holder" (n: the try that
--              took it; granted: when, in ms; streak: hand-overs in a row, since when in ms). Once that hold is
--              over "token" alone, or "token until": until then (ms) the key is left to clients that poll.
--              One string, because one command reads it, writes it and sets its expiry
--   KEYS[3] Q  waiters in order of arrival: a sorted set of owners
--   KEYS[4] W  a hash, owner -> what the waiter said of itself: "n alive until channel holder"
local L, F, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local time = call('TIME')
-- As text where it goes back to the server: making text of a large number costs more than a command does.
local micros = time[1] .. string.sub('00000' .. time[2], -6)
local millis = string.sub(micros, 1, -4)

-- Notes the grant of the lock that was just taken; answers its token: one more than the last and at least the time in
-- microseconds, so that it rises even when the counter was lost.
local function note(owner, n, channel, streak, since, holder)
  local about = ' ' .. owner .. ' ' .. n .. ' ' .. millis .. ' ' .. channel .. ' ' .. streak .. ' ' .. since .. ' ' .. holder
  local last = redis.pcall('SET', F, micros .. about, 'PX', '604800000', 'GET')
  if type(last) == 'table' then
    -- Something else lies there. Nobody would be told of a lock without a token: it is free again.
    call('DEL', L)
    error(last.err)
  end
  last = last and tonumber(string.match(last, '^%d+')) or 0
  if last < tonumber(micros) then return micros end
  -- The clock was set back. The counter lasts until long after the time that it is ahead to.
  local token = string.format('%.0f', last + 1)
  local keep = string.format('%.0f', math.floor((last + 1) / 1000) - tonumber(millis) + 604800000)
  call('SET', F, token .. about, 'PX', keep)
  return token
end
