#include "locks/file/file_system.h"

#include <linux/magic.h>
#include <stddef.h>

/* Numbers without a name here are in no header of the kernel's interface; most are in statfs(2). */
static const struct file_system_type types[] = {
	{ TMPFS_MAGIC, FILE_SYSTEM_MEMORY, "tmpfs" },
	{ RAMFS_MAGIC, FILE_SYSTEM_MEMORY, "ramfs" },
	{ EXT4_SUPER_MAGIC, FILE_SYSTEM_DISK, "ext2, ext3 or ext4" },
	{ XFS_SUPER_MAGIC, FILE_SYSTEM_DISK, "XFS" },
	{ BTRFS_SUPER_MAGIC, FILE_SYSTEM_DISK, "btrfs" },
	{ F2FS_SUPER_MAGIC, FILE_SYSTEM_DISK, "F2FS" },
	{ OVERLAYFS_SUPER_MAGIC, FILE_SYSTEM_DISK, "overlay" },
	{ 0x2fc12fc1, FILE_SYSTEM_DISK, "ZFS" },
	{ 0xca451a4e, FILE_SYSTEM_DISK, "bcachefs" },
	{ 0x24051905, FILE_SYSTEM_LOCAL, "UBIFS" },
	{ ECRYPTFS_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "eCryptfs" },
	{ 0x72b6, FILE_SYSTEM_LOCAL, "JFFS2" },
	{ MSDOS_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "FAT" },
	{ 0x2011bab0, FILE_SYSTEM_LOCAL, "exFAT" },
	{ 0x7366746e, FILE_SYSTEM_LOCAL, "NTFS" },
	{ 0x5346544e, FILE_SYSTEM_LOCAL, "NTFS" },
	{ NILFS_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "NILFS2" },
	{ REISERFS_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "ReiserFS" },
	{ 0x3153464a, FILE_SYSTEM_LOCAL, "JFS" },
	{ MINIX_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "Minix" },
	{ MINIX_SUPER_MAGIC2, FILE_SYSTEM_LOCAL, "Minix" },
	{ MINIX2_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "Minix" },
	{ MINIX2_SUPER_MAGIC2, FILE_SYSTEM_LOCAL, "Minix" },
	{ MINIX3_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "Minix" },
	{ 0x4244, FILE_SYSTEM_LOCAL, "HFS" },
	{ 0x482b, FILE_SYSTEM_LOCAL, "HFS+" },
	{ 0x4858, FILE_SYSTEM_LOCAL, "HFS+" },
	{ 0x00011954, FILE_SYSTEM_LOCAL, "UFS" },
	{ UDF_SUPER_MAGIC, FILE_SYSTEM_LOCAL, "UDF" },
	{ 0x61756673, FILE_SYSTEM_LOCAL, "aufs" },
	{ NFS_SUPER_MAGIC, FILE_SYSTEM_SHARED, "NFS" },
	{ SMB_SUPER_MAGIC, FILE_SYSTEM_SHARED, "SMB" },
	{ CIFS_SUPER_MAGIC, FILE_SYSTEM_SHARED, "SMB" },
	{ SMB2_SUPER_MAGIC, FILE_SYSTEM_SHARED, "SMB" },
	{ FUSE_SUPER_MAGIC, FILE_SYSTEM_SHARED, "FUSE or virtiofs" },
	{ CEPH_SUPER_MAGIC, FILE_SYSTEM_SHARED, "CephFS" },
	{ V9FS_MAGIC, FILE_SYSTEM_SHARED, "9p" },
	{ AFS_SUPER_MAGIC, FILE_SYSTEM_SHARED, "AFS" },
	{ AFS_FS_MAGIC, FILE_SYSTEM_SHARED, "AFS" },
	{ CODA_SUPER_MAGIC, FILE_SYSTEM_SHARED, "Coda" },
	{ NCP_SUPER_MAGIC, FILE_SYSTEM_SHARED, "NCP" },
	{ OCFS2_SUPER_MAGIC, FILE_SYSTEM_SHARED, "OCFS2" },
	{ 0x01161970, FILE_SYSTEM_SHARED, "GFS2" },
	{ 0x0bd00bd0, FILE_SYSTEM_SHARED, "Lustre" },
	{ 0x47504653, FILE_SYSTEM_SHARED, "GPFS" },
	{ 0x19830326, FILE_SYSTEM_SHARED, "BeeGFS" },
	{ 0x20030528, FILE_SYSTEM_SHARED, "OrangeFS" },
	{ 0xbacbacbc, FILE_SYSTEM_SHARED, "VMware's shared folders" },
	{ 0x786f4256, FILE_SYSTEM_SHARED, "VirtualBox's shared folders" },
	{ 0x7c7c6673, FILE_SYSTEM_SHARED, "Parallels' shared folders" },
};

const struct file_system_type *file_system_type(uint32_t magic)
{
	static const struct file_system_type unknown = { 0, FILE_SYSTEM_SHARED, "a type that Lunarch does not know" };

	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (types[i].magic == magic)
			return &types[i];
	return &unknown;
}
