-- Marks are 30 digits. Two halves of 15 are numbers that Lua holds exactly.
local function leasehold_higher(a, b)
  local left, right = tonumber(string.sub(a, 1, 15)), tonumber(string.sub(b, 1, 15))
  if left ~= right then return left > right end
  return tonumber(string.sub(a, 16)) > tonumber(string.sub(b, 16))
end

local function leasehold_seen(key)
  local seen = redis.call('GET', key)
  if seen and not (#seen == 30 and string.find(seen, '^%d+$')) then
    error('the key ' .. key .. ' holds no mark')
  end
  return seen
end

-- Remembers the mark and answers false, or answers what has been seen if that is higher.
local function leasehold_fence(key, mark)
  if not (type(mark) == 'string' and #mark == 30 and string.find(mark, '^%d+$')) then
    error('a mark has 30 digits')
  end
  local seen = leasehold_seen(key)
  if seen and leasehold_higher(seen, mark) then return seen end
  if seen ~= mark then redis.call('SET', key, mark) end
  return false
end

-- Begins an epoch unless it has begun; answers what has been seen afterwards.
local function leasehold_advance(key, mark)
  local seen = leasehold_seen(key)
  if seen and tonumber(string.sub(seen, 1, 10)) >= tonumber(string.sub(mark, 1, 10)) then return seen end
  redis.call('SET', key, mark)
  return mark
end
