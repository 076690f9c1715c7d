-- Shared by the scripts that grant: set before them. Keys of one lock, all in one slot:
--   KEYS[1] L  the lock itself: a string, the owner, with an expiry; what other libraries' clients respect
--   KEYS[2] F  a hash: c newest token, o owner of it, n its try, m holder, g granted (ms), h its channel,
--              q newest place in the queue, s/S hand-overs in a row and since when, b the last broken owner
--   KEYS[3] Q  waiters in order of arrival: a sorted set of owners
--   KEYS[4] W  a hash, owner -> what the waiter said of itself: "n alive until channel holder"
local L, F, Q, W = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local week = 604800000

-- Gives the lock to `owner` for `px` ms. The token is one more than the last and at least the time in
-- microseconds, so that it rises even when the counter was lost.
local function grant(owner, n, px, channel, holder, streak)
  local token = (tonumber(call('HGET', F, 'c')) or 0) + 1
  local floor = time[1] * 1000000 + time[2]
  if token < floor then token = floor end
  local text = string.format('%.0f', token)
  call('SET', L, owner, 'PX', px)
  call('HSET', F, 'c', text, 'o', owner, 'n', n, 'm', holder, 'g', now, 'h', channel, 's', streak)
  -- Long after the lock; by the counter where that lies ahead of the clock, so that a clock set back
  -- can't lower a token.
  local ahead = math.floor(token / 1000) - now
  if ahead < 0 then ahead = 0 end
  call('PEXPIRE', F, string.format('%.0f', ahead + week))
  return text
end

local function leave(owner)
  call('ZREM', Q, owner)
  call('HDEL', W, owner)
end

-- The first waiter that is alive, and what it said; those before it are dropped.
local function first()
  while true do
    local head = call('ZRANGE', Q, 0, 0)[1]
    if not head then return nil end
    local said = call('HGET', W, head)
    if said then
      local n, alive, till, channel, holder = string.match(said, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
      if n and tonumber(till) > now then
        return head, n, alive, tonumber(till) - now, channel, holder
      end
    end
    leave(head)
  end
end

-- Gives the lock, which is ours to give, to the first waiter alive and tells it alone. It has the lock for
-- the rest of the time it said it is alive: counted from its own last try, that is a lease it can use
-- without asking. A waiter whose process no longer listens is passed over.
local function pass(streak)
  while true do
    local head, n, alive, window, channel, holder = first()
    if not head then return nil end
    leave(head)
    local token = grant(head, n, window, channel, holder, streak)
    local heard = redis.pcall('PUBLISH', channel, 'granted ' .. head .. ' ' .. token .. ' ' .. n .. ' ' .. alive)
    if type(heard) ~= 'number' or heard > 0 then return head end
    call('DEL', L)
  end
end
