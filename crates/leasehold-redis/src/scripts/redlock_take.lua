-- One request for the lock on one node, or for a place in its queue alone; after redlock_common.lua.
-- ARGV: owner, number, mode (take: in turn; turn: out of turn; stay: a place and not the lock), ttl ms, alive ms,
--       channel (- for one that doesn't wait), holder.
-- Answers: {'granted', counter, micros}
--          | {'busy', place, mark of the value at the lock, ours (0/1), expires in ms, token, granted ms, holder}
--          | {'void', why} | {'type', what it is}
local mode, ttl, alive, channel = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local time = call('TIME')
local micros = time[1] .. string.sub('00000' .. time[2], -6)
local millis = string.sub(micros, 1, -4)
local now = tonumber(millis)

-- Gives the lock. A node without a floor has lost its memory, and its vote would be a lie. A counter that is missing
-- reads as the floor, which no token accepted here exceeds; so does one from before the base, which may have come back
-- with a snapshot.
local function grant()
  local known = call('HMGET', R, 'floor', 'base')
  local floor, base = known[1], tonumber(known[2] or 0)
  if not floor then return {'void', 'forgot'} end
  local counter = call('HGET', F, 'c')
  if not counter or tonumber(counter) < base then
    counter = floor
    call('HSET', F, 'c', counter)
    call('PEXPIRE', F, 604800000)
  end
  call('SET', L, owner, 'PX', ttl)
  call('HSET', F, 'o', owner, 'n', ARGV[2], 't', '', 'm', ARGV[7], 'g', millis, 'h', channel)
  return {'granted', counter, micros}
end

-- Free, nobody waits, and the owner wasn't released: nearly always so.
if mode ~= 'stay' and call('EXISTS', L, Q, X) == 0 then return grant() end

-- This owner has been released while this request was on its way.
if call('EXISTS', X) == 1 then return {'void', 'gone'} end
local held, problem = current()
if problem then return problem end

-- A request that was overtaken by a newer one of the same owner changes nothing.
local mine = held == owner
local before = mine and call('HGET', F, 'n') or string.match(call('HGET', W, owner) or '', '^(%d+)')
if tonumber(before or 0) > number then return {'void', 'overtaken'} end

if mode ~= 'stay' and (mine or not held and (mode == 'turn' or not first(now))) then
  leave(owner)
  local left = mine and call('PTTL', L) or 0
  local answer = grant()
  if left > tonumber(ttl) then call('PEXPIRE', L, left) end
  return answer
end

if channel ~= '-' then
  call('HSET', W, owner, ARGV[2] .. ' ' .. string.format('%.0f', now + alive) .. ' ' .. channel .. ' ' .. ARGV[7])
  if not call('ZSCORE', Q, owner) then call('ZADD', Q, call('HINCRBY', F, 'q', 1), owner) end
  if call('PTTL', F) < 0 then call('PEXPIRE', F, 604800000) end
  -- The queue is gone by itself once nobody in it is alive.
  if call('PTTL', Q) < alive then
    call('PEXPIRE', Q, alive + 1000)
    call('PEXPIRE', W, alive + 1000)
  end
end
if mine then
  free()
  tell(now)
  held = nil
end
local place = call('ZRANK', Q, owner) or call('ZCARD', Q)
if not held then return {'busy', place, '', 0, 0, '', '', ''} end
local about = call('HMGET', F, 'o', 't', 'g', 'm')
local ours = about[1] == held
-- Other makes put any bytes there.
return {'busy', place, redis.sha1hex(held), ours and 1 or 0, call('PTTL', L), ours and about[2] or '', ours and about[3] or '', ours and about[4] or ''}
