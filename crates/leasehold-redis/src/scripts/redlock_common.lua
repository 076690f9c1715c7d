-- Shared by the scripts of one Redlock node that give or free a lock. Keys as in common.lua, and besides:
--   KEYS[5] X  the owner's tombstone
--   KEYS[6] R  the node's record: floor (no token accepted here is higher), base (no counter here counts for less),
--              longest, durable, version, run:NAME
-- F has: c newest token, or the floor it began with; o owner of L, n number of its request, t its token once it is
-- written, m holder, g granted (ms), h its channel.
-- Queues: Q by arrival here; W is owner -> "number alive-until channel holder".
local L, F, Q, W, X, R = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local call = redis.call
local owner, number = ARGV[1], tonumber(ARGV[2])

-- What is at L; an error where that is no lock, or where there is no right to look.
local function current()
  local value = redis.pcall('GET', L)
  if type(value) == 'table' and string.find(value.err, 'WRONGTYPE') then
    return nil, {'type', call('TYPE', L).ok}
  end
  if type(value) == 'table' then return nil, value end
  return value
end

local function leave(who)
  call('ZREM', Q, who)
  call('HDEL', W, who)
end

-- The first in the queue that is alive, and its channel; those before it are dropped.
local function first(now)
  while true do
    local head = call('ZRANGE', Q, 0, 0)[1]
    if not head then return nil end
    local till, channel = string.match(call('HGET', W, head) or '', '^%d+ (%d+) (%S+) ')
    if till and tonumber(till) > now then return head, channel end
    leave(head)
  end
end

-- L is free now, or will be earlier: tells the first in the queue that is alive and listens, and answers it. It keeps its place until
-- it takes the lock: another node may have told another.
local function tell(now)
  while true do
    local head, channel = first(now)
    if not head then return '', '' end
    local words = 'free ' .. head .. ' ' .. string.sub(owner, 1, 8) .. '.' .. ARGV[2]
    local heard = redis.pcall('PUBLISH', channel, words)
    if type(heard) ~= 'number' or heard > 0 then return head, channel end
    leave(head)
  end
end

local function free()
  call('DEL', L)
  call('HDEL', F, 'o', 'n', 't', 'm', 'g', 'h')
end
