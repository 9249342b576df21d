/** Tests which errors mean that the disk is full. */
import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { it } from 'node:test';
import { isDiskFull } from '../../../../api/machinery/disk-full.ts';

const failure = (code: string, errno?: number): Error => Object.assign(new Error(code), { code, errno });

it('a full disk and an exhausted quota, for which Node has no name, are no room; other failures are not', () => {
  const { ENOSPC, EDQUOT, EIO } = constants.errno;
  assert.equal(isDiskFull(failure('ENOSPC', -ENOSPC)), true);
  assert.equal(isDiskFull(failure(`Unknown system error -${EDQUOT}`, -EDQUOT)), true);
  assert.equal(isDiskFull(failure('EIO', -EIO)), false);
  assert.equal(isDiskFull(failure('SQLITE_FULL')), false);
  assert.equal(isDiskFull('ENOSPC'), false);
});
