/** Which errors mean that the disk is full. */
import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { it } from 'node:test';
import { foundNoRoom } from '../../../../api/machinery/no-room.ts';

const failure = (code: string, errno?: number): Error => Object.assign(new Error(code), { code, errno });

it('a full disk and an exhausted quota, for which Node has no name, are no room; other failures are not', () => {
  const { ENOSPC, EDQUOT, EIO } = constants.errno;
  assert.equal(foundNoRoom(failure('ENOSPC', -ENOSPC)), true);
  assert.equal(foundNoRoom(failure(`Unknown system error -${EDQUOT}`, -EDQUOT)), true);
  assert.equal(foundNoRoom(failure('EIO', -EIO)), false);
  assert.equal(foundNoRoom(failure('SQLITE_FULL')), false);
  assert.equal(foundNoRoom('ENOSPC'), false);
});
