/** Who could put something else in the place of a path. */
import assert from 'node:assert/strict';
import { chmodSync, chownSync, lchownSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { whoMayReplace } from '../../../../cli/host/replaceable-path.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

const USER = 4321;
const NOBODY = 65_534;

describe('a path may be replaced', { skip: process.geteuid?.() !== 0 && 'needs root' }, () => {
  const folderWith = ({ mode = 0o755, uid = 0, gid = 0 } = {}): string => {
    const folder = temporaryFolder();
    chownSync(folder, uid, gid);
    chmodSync(folder, mode);
    mkdirSync(join(folder, 'data'));
    return folder;
  };
  const inside = (folder: string): number | undefined => whoMayReplace(join(folder, 'data'))?.uid;

  it('by nobody else where all directories above it are those of root', () => {
    assert.equal(inside(folderWith()), undefined);
    assert.equal(inside(folderWith({ mode: 0o775 })), undefined);
  });

  it('by the owner of a directory above it, however deep it is, and whether it exists', () => {
    const folder = folderWith({ uid: USER });
    mkdirSync(join(folder, 'data/deep/deeper'), { recursive: true });
    for (const path of ['data', 'data/deep/deeper', 'missing', 'missing/deep'])
      assert.equal(whoMayReplace(join(folder, path))?.uid, USER, path);
  });

  it('by everybody where a directory above it can be written by all, or by a group', () => {
    assert.equal(inside(folderWith({ mode: 0o777 })), NOBODY);
    assert.equal(inside(folderWith({ mode: 0o775, gid: USER })), NOBODY);
  });

  it('by its owner alone where the directory above it has the sticky bit', () => {
    const folder = folderWith({ mode: 0o1777 });
    assert.equal(inside(folder), undefined);
    chownSync(join(folder, 'data'), USER, USER);
    assert.equal(inside(folder), USER);
  });

  it('by who owns what a link leads through, and by the owner of a link in a directory with the sticky bit', () => {
    const [of, users, open] = [folderWith(), folderWith({ uid: USER }), folderWith({ mode: 0o1777 })];
    symlinkSync(join(users, 'data'), join(of, 'link'));
    symlinkSync('../data', join(of, 'data/relative'));
    symlinkSync(join(of, 'data'), join(open, 'link'));
    assert.equal(whoMayReplace(join(of, 'link'))?.uid, USER);
    assert.equal(whoMayReplace(join(of, 'data/relative')), undefined);
    assert.equal(whoMayReplace(join(open, 'link')), undefined);
    lchownSync(join(open, 'link'), USER, USER);
    assert.equal(whoMayReplace(join(open, 'link'))?.uid, USER);
  });

  it('is an error for links without an end', () => {
    const folder = folderWith();
    symlinkSync('b', join(folder, 'a'));
    symlinkSync('a', join(folder, 'b'));
    assert.throws(() => whoMayReplace(join(folder, 'a')), /has more than 40 links/);
  });
});
