-- Who holds and who waits; after common.lua.
local now = tonumber(millis)
-- How long the key is left to clients that poll: those that look ten times a second get it within seconds.
local pause = 25

-- Token, owner, granted, channel, streak, since and holder of the newest grant; the token alone once it is over.
local function newest()
  local said = call('GET', F) or ''
  local token, owner, granted, channel, streak, since, holder =
    string.match(said, '^(%d+) (%S+) %d+ (%d+) (%S+) (%d+) (%d+) (.*)$')
  return token or string.match(said, '^%d+'), owner, granted, channel, streak, since, holder
end

-- The hold of the newest grant is over; its counter stays.
local function over(token, left_until)
  if token then call('SET', F, left_until and token .. ' ' .. left_until or token, 'XX', 'KEEPTTL') end
end

-- Tells a process something; how many heard it. A channel of a Cluster's slot says so in its name. Never fails: what
-- was written before stays written.
local function tell(channel, what)
  local sharded = string.sub(channel, 1, 12) == 'leasehold:s:'
  return redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', channel, what)
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
-- without asking. A waiter whose process no longer listens is passed over. Ends where it would be `looker`'s turn,
-- who asks for itself.
local function pass(streak, since, looker)
  while true do
    local head, n, alive, window, channel, holder = first()
    if not head or head == looker then return nil end
    leave(head)
    call('SET', L, head, 'PX', window)
    local token = note(head, n, channel, streak, since, holder)
    local heard = tell(channel, 'granted ' .. head .. ' ' .. token .. ' ' .. n .. ' ' .. alive)
    if type(heard) ~= 'number' or heard > 0 then return head end
    call('DEL', L)
    over(token)
  end
end
