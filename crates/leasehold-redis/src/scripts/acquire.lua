-- One try on a lock that is held or waited for; after acquire_free.lua and queue.lua.
local ttl, alive, queue = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

-- This owner has been released while a try of it was still on its way: this is that try.
if call('EXISTS', KEYS[5]) == 1 then return {'gone'} end

local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end

-- The lock is this owner's from here on.
local function take()
  leave(owner)
  call('SET', L, owner, 'PX', ttl)
  return note(owner, n, channel, '0', '0', holder)
end

if current == owner then
  -- Handed over meanwhile, or the answer to the try that took it was lost: the same grant again.
  local token, of = newest()
  if of ~= owner then return take() end
  if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end
  leave(owner)
  return token
end

local left
if not current then
  if call('EXISTS', Q) == 0 then return take() end
  left = (tonumber(string.match(call('GET', F) or '', '^%d+ (%d+)$')) or 0) - now
  -- Longer than that it was never to be: the clock was set back.
  if left > pause then left = 0 end
end

if not current and left <= 0 then
  -- Who comes first is given the lock, whoever looked; who looked keeps its place.
  current = pass('0', '0', owner)
  if not current then return take() end
end

if queue then
  local said = call('HGET', W, owner)
  -- A try that was overtaken must not bring an older number back: the lease would count from it.
  local known = said and tonumber(string.match(said, '^(%d+)')) or 0
  if known < tonumber(n) then
    call('HSET', W, owner, n .. ' ' .. alive .. ' ' .. string.format('%.0f', now + alive) .. ' ' .. channel .. ' ' .. holder)
  end
  if not call('ZSCORE', Q, owner) then
    -- By the time, and after everyone who is there even where the clock was set back.
    local last = tonumber(call('ZRANGE', Q, -1, -1, 'WITHSCORES')[2]) or 0
    call('ZADD', Q, string.format('%.0f', math.max(last + 1, tonumber(micros))), owner)
  end
  -- The queue is gone by itself once nobody in it is alive.
  if call('PTTL', Q) < alive then
    call('PEXPIRE', Q, alive + 1000)
    call('PEXPIRE', W, alive + 1000)
  end
end

local place = call('ZRANK', Q, owner) or call('ZCARD', Q)
if not current then return {'busy', 0, place, left, '', '', ''} end
local token, of, granted, _, _, _, about = newest()
if of ~= current then return {'busy', 0, place, call('PTTL', L), '', '', ''} end
return {'busy', 1, place, call('PTTL', L), token, granted, about}
