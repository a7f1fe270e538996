# A process that calls itself QEMU and listens at the monitor that its command line names, as another
# user's would who means harm. The first argument says how its monitor behaves;
# `-qmp unix:PATH,server,nowait` follows.
use strict;
use warnings;
use Socket;

my $way = $ARGV[0];
my ($path) = map { /^unix:([^,]*),/ ? $1 : () } @ARGV;
$SIG{PIPE} = 'IGNORE';
sub at {
    my ($at, $backlog) = @_;
    socket(my $socket, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    bind($socket, pack_sockaddr_un($at)) or die "bind $at: $!";
    listen($socket, $backlog) or die "listen: $!";
    return $socket;
}
my ($listener, $other, @waiting);
if ($way eq 'full') {
    # The list of sockets shows one that is free at this path; the file is another one, whose queue
    # is full.
    $other = at("$path-full", 0);
    socket($waiting[0], PF_UNIX, SOCK_STREAM, 0) and connect($waiting[0], pack_sockaddr_un("$path-full")) or die "connect: $!";
    $listener = at($path, 5);
    rename("$path-full", $path) or die "rename: $!";
} else {
    $listener = at($path, 5);
}
$| = 1;
print "ready\n";
my $greeting = "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 0, \"minor\": 2, \"major\": 9}, \"package\": \"\"}, \"capabilities\": []}}\n";
my $running = "{\"return\": {\"running\": false, \"status\": \"paused\"}}\n";
while (accept(my $visitor, $listener)) {
    my $say = sub { defined syswrite($visitor, $_[0]) };
    my $line = sub { my $read = ''; while ($read !~ /\n/) { sysread($visitor, $read, 4096, length $read) or return } return $read };
    if ($way eq 'full' or $way eq 'silent') {
        $line->();
    } elsif ($way eq 'drip') {
        for my $byte (split //, $greeting) { $say->($byte) or last; sleep 1 }
    } elsif ($way eq 'endless') {
        my $much = 'x' x 65536;
        for (1 .. 16384) { $say->($much) or last }
    } elsif ($way =~ /^threads=(.*)/) {
        $say->($greeting);
        my @threads = map { $_ eq 'own' ? $$ : $_ } split /,/, $1;
        my $list = join ', ', map { "{\"cpu-index\": $_, \"thread-id\": $threads[$_]}" } 0 .. $#threads;
        while (defined(my $asked = $line->())) {
            $say->($asked =~ /query-cpus-fast/ ? "{\"return\": [$list]}\n" : $asked =~ /query-status/ ? $running : "{\"return\": {}}\n");
        }
    } else {
        # It greets, and then says nothing.
        $say->($greeting);
        1 while defined $line->();
    }
    close $visitor;
}
