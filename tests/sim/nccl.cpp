/* NCCL among the devices of one program, between communicators of any threads. A call becomes work of its stream. When
 * that work reaches the head, its rank has arrived, and when all ranks have, the data move. Collectives of different
 * kinds or sizes that meet are an error with a name.
 *
 * Ranks of other processes (mirt_sim_together) are reached by files: what a rank sends, and what it adds, is a file
 * that the others wait for.
 *
 * A call on a communicator that does not block becomes work when the seed says so: with the call, or not before
 * somebody has asked for its state a few times. Until then the communicator takes no calls. */
#include "sim_internal.h"
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <deque>
#include <map>
#include <nccl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace mirt_sim;

namespace {
enum Kind { ALL_REDUCE, BROADCAST, REDUCE_TO, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE };
const char *const kind_names[] = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "Send", "Recv"};

struct Clique;
struct Job;
struct Rank {
    std::shared_ptr<Clique> clique;
    int rank, device;
    bool blocking = true, aborted = false, dead = false;
    ncclResult_t error = ncclSuccess;
    std::shared_ptr<Job> job; /* what is under way */
    uint64_t issued = 0, begun = 0, round = 0, ended = 0;
};
struct Call {
    Kind kind;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
};
/* A call whose rank has come. */
struct Posted {
    std::shared_ptr<Rank> rank;
    Call call;
    bool done;
    std::string letter; /* the file that it waits for */
};
typedef std::shared_ptr<Posted> Post;
struct Clique {
    int n, joined = 0;
    bool failed = false;
    bool torn = false; /* a rank left before all had joined: the others wait on */
    std::string id;
    mutable bool there = false; /* ranks of other processes, too */
    std::map<std::pair<int, int>, uint64_t> letters; /* between processes, by sender and receiver */
    std::vector<std::shared_ptr<Rank>> ranks;
    std::map<uint64_t, std::vector<Post>> rounds;
    std::map<std::pair<int, int>, std::pair<std::deque<Post>, std::deque<Post>>> mail; /* by sender and receiver */
    bool ready() const { return (joined == n || (together() && all_there())) && !failed && !torn; }
    bool all_there() const;
    std::string file(const std::string &name) const;
};
} // namespace

struct ncclComm {
    std::shared_ptr<Rank> rank;
    long number;
};

namespace {
std::set<ncclComm_t> comms;
std::map<std::string, std::shared_ptr<Clique>> meetings;
std::vector<std::weak_ptr<Clique>> cliques;
long made, ids;

struct Waiting {
    ncclComm_t comm;
    cudaStream_t stream;
    std::vector<Call> calls;
};
/* A group of communicators that do not block. */
struct Job {
    std::vector<Waiting> calls;
    std::vector<std::shared_ptr<Rank>> ranks;
    bool joins = false, over = false;
    int polls = 1; /* until it is over */
};
struct Group {
    int depth = 0;
    std::vector<Waiting> calls;
    std::vector<ncclComm_t> joins;
    bool failed = false;
};
thread_local Group group;

size_t size_of(ncclDataType_t type) {
    switch ((int)type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: fatal("not simulated: type %d of NCCL", (int)type);
    }
}

template <class T> T combine(T a, T b, ncclRedOp_t op) {
    switch ((int)op) {
    case ncclSum:
    case ncclAvg: return (T)(a + b);
    case ncclProd: return (T)(a * b);
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: fatal("not simulated: operation %d of NCCL", (int)op);
    }
}

/* Chunk c is summed as a ring does: from rank c + 1 around to c. */
template <class T, class W> void reduce_as(const std::vector<const void *> &in, size_t count, ncclRedOp_t op, T *out) {
    size_t n = in.size(), chunk = (count + n - 1) / n;
    for (size_t i = 0; i < count; i++) {
        size_t first = i / chunk + 1;
        T sum = static_cast<const T *>(in[first % n])[i];
        for (size_t k = 1; k < n; k++)
            sum = (T)combine<W>((W)sum, (W) static_cast<const T *>(in[(first + k) % n])[i], op);
        out[i] = op == ncclAvg ? (T)((W)sum / (W)n) : sum;
    }
}

std::vector<char> reduced(const std::vector<const void *> &in, size_t count, ncclDataType_t type, ncclRedOp_t op) {
    std::vector<char> out(count * size_of(type) + 1);
    void *p = out.data();
    switch ((int)type) {
    case ncclInt8: reduce_as<int8_t, int>(in, count, op, static_cast<int8_t *>(p)); break;
    case ncclUint8: reduce_as<uint8_t, int>(in, count, op, static_cast<uint8_t *>(p)); break;
    case ncclInt32: reduce_as<int32_t, int64_t>(in, count, op, static_cast<int32_t *>(p)); break;
    case ncclUint32: reduce_as<uint32_t, uint64_t>(in, count, op, static_cast<uint32_t *>(p)); break;
    case ncclInt64: reduce_as<int64_t, int64_t>(in, count, op, static_cast<int64_t *>(p)); break;
    case ncclUint64: reduce_as<uint64_t, uint64_t>(in, count, op, static_cast<uint64_t *>(p)); break;
    case ncclFloat32: reduce_as<float, float>(in, count, op, static_cast<float *>(p)); break;
    case ncclFloat64: reduce_as<double, double>(in, count, op, static_cast<double *>(p)); break;
    case ncclFloat16: reduce_as<__half, float>(in, count, op, static_cast<__half *>(p)); break;
    case ncclBfloat16: reduce_as<__nv_bfloat16, float>(in, count, op, static_cast<__nv_bfloat16 *>(p)); break;
    }
    return out;
}

const char *kind_name(const Call &c) { return kind_names[c.kind]; }

std::string describe_call(const Post &p) {
    char text[120];
    snprintf(text, sizeof text, "rank %d calls %s of %zu (type %d, operation %d, peer or root %d)", p->rank->rank,
             kind_name(p->call), p->call.count, (int)p->call.type, (int)p->call.op, p->call.peer);
    return text;
}

/* >>other processes */

std::string folder = getenv("MIRT_SIM_TOGETHER") ? getenv("MIRT_SIM_TOGETHER") : "";

std::string Clique::file(const std::string &name) const { return folder + "/" + id + "." + name; }

bool Clique::all_there() const {
    struct stat s;
    for (int i = 0; i < n && !there; i++)
        if (stat(file("joined." + std::to_string(i)).c_str(), &s) != 0) return false;
    return there = true;
}

/* What a file says of itself. */
struct Letter {
    Kind kind;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
};

void write_letter(const std::string &name, const Letter &letter, const void *data) {
    const std::string own = name + ".part";
    const size_t bytes = letter.count * size_of(letter.type);
    FILE *f = fopen(own.c_str(), "wb");
    const bool good = f && fwrite(&letter, sizeof letter, 1, f) == 1 && fwrite(data, 1, bytes, f) == bytes;
    if (!f || fclose(f) != 0 || !good || rename(own.c_str(), name.c_str()) != 0)
        fatal("a file for another process could not be written: %s", name.c_str());
}

/* False: it is not there yet. */
bool read_letter(const std::string &name, const Post &p, std::vector<char> *data) {
    Letter letter;
    FILE *f = fopen(name.c_str(), "rb");
    if (!f) return false;
    data->resize(p->call.count * size_of(p->call.type));
    const bool good = fread(&letter, sizeof letter, 1, f) == 1 && letter.count == p->call.count &&
                      letter.type == p->call.type && letter.op == p->call.op &&
                      (letter.kind == p->call.kind || (letter.kind == SEND && p->call.kind == RECEIVE)) &&
                      fread(data->data(), 1, data->size(), f) == data->size();
    fclose(f);
    if (!good) fatal("NCCL mismatch: %s, but %s says otherwise", describe_call(p).c_str(), name.c_str());
    return true;
}

bool is_here(const Clique *q, int rank) { return q->ranks[(size_t)rank] != nullptr; }

/* What a rank sends to another process, or adds. */
void leave_letter(const std::string &name, const Post &p) {
    const Letter letter = {p->call.kind, p->call.count, p->call.type, p->call.op};
    run_as(kind_name(p->call), p->rank->device, 1u << p->rank->device, [&] {
        reads(p->call.from, letter.count * size_of(letter.type));
        write_letter(name, letter, p->call.from);
    });
}

void post_letter(const Post &p) {
    Clique *q = p->rank->clique.get();
    const bool sends = p->call.kind == SEND;
    const int from = sends ? p->rank->rank : p->call.peer, to = sends ? p->call.peer : p->rank->rank;
    const std::string name = q->file(std::to_string(from) + "." + std::to_string(to) + "." +
                                     std::to_string(q->letters[{from, to}]++));
    if (sends) leave_letter(name, p);
    else p->letter = name;
    p->done = sends;
}

/* Looks for what another process has sent. */
void fetch_letter(const Post &p) {
    std::vector<char> data;
    if (p->done || p->letter.empty() || !read_letter(p->letter, p, &data)) return;
    run_as("Recv", p->rank->device, 1u << p->rank->device, [&] {
        writes(p->call.to, data.size());
        memcpy(p->call.to, data.data(), data.size());
    });
    unlink(p->letter.c_str());
    p->done = true;
    changed();
}

/* A sum over processes, of which this one's ranks have all come, once those of others have. */
void fetch_round(const Post &p) {
    Clique *q = p->rank->clique.get();
    if (p->done || p->letter.empty()) return;
    std::vector<std::vector<char>> data((size_t)q->n);
    std::vector<const void *> in;
    for (int i = 0; i < q->n; i++) {
        if (!read_letter(p->letter + "." + std::to_string(i), p, &data[(size_t)i])) return;
        in.push_back(data[(size_t)i].data());
    }
    const std::vector<char> sum = reduced(in, p->call.count, p->call.type, p->call.op);
    run_as("AllReduce", p->rank->device, 1u << p->rank->device, [&] {
        writes(p->call.to, sum.size() - 1);
        memcpy(p->call.to, sum.data(), sum.size() - 1);
    });
    p->done = true;
    changed();
}

void post_sum(const Post &p) {
    Clique *q = p->rank->clique.get();
    if (p->call.kind != ALL_REDUCE) fatal("not simulated between processes: %s", describe_call(p).c_str());
    p->letter = q->file("sum." + std::to_string(p->rank->round++));
    leave_letter(p->letter + "." + std::to_string(p->rank->rank), p);
}

/* >>ranks of this process */

/* All have come: the data move. Everything is read before anything is written, as buffers may be the same. */
void move_round(std::vector<Post> &posts) {
    std::sort(posts.begin(), posts.end(), [](const Post &a, const Post &b) { return a->rank->rank < b->rank->rank; });
    const Call &c = posts[0]->call;
    size_t n = posts.size(), bytes = c.count * size_of(c.type);
    unsigned mask = 0;
    std::vector<const void *> in;
    for (const Post &p : posts) {
        mask |= 1u << p->rank->device;
        in.push_back(p->call.from);
    }
    const void *meeting = posts[0]->rank->clique.get();
    run_as(kind_name(c), posts[0]->rank->device, mask, [&] {
        after(meeting);
        for (size_t r = 0; r < n; r++) {
            if (c.kind != BROADCAST || (int)r == c.peer) reads(in[r], c.kind == REDUCE_SCATTER ? bytes * n : bytes);
            if (c.kind != REDUCE_TO || (int)r == c.peer)
                writes(posts[r]->call.to, c.kind == ALL_GATHER ? bytes * n : bytes);
        }
        std::vector<char> data;
        if (c.kind == ALL_REDUCE || c.kind == REDUCE_TO) data = reduced(in, c.count, c.type, c.op);
        else if (c.kind == REDUCE_SCATTER) data = reduced(in, c.count * n, c.type, c.op);
        else if (c.kind == BROADCAST)
            data.assign(static_cast<const char *>(in[(size_t)c.peer]),
                        static_cast<const char *>(in[(size_t)c.peer]) + bytes);
        else
            for (const void *p : in)
                data.insert(data.end(), static_cast<const char *>(p), static_cast<const char *>(p) + bytes);
        for (size_t r = 0; r < n; r++) {
            if (c.kind == REDUCE_TO && (int)r != c.peer) continue;
            const char *from = data.data() + (c.kind == REDUCE_SCATTER ? r * bytes : 0);
            memcpy(posts[r]->call.to, from, c.kind == ALL_GATHER ? bytes * n : bytes);
        }
        before(meeting);
    });
    for (const Post &p : posts) p->done = true;
}

/* Gradients of one layout: where a rank's part lies elsewhere than another's, in memory of the same size, the ranks sum
   different things. */
void check_same_place(const Post &a, const Post &b) {
    size_t at, bytes, other, other_bytes;
    if (a->call.kind != ALL_REDUCE || !options().same_places) return;
    if (place_of(a->call.from, &at, &bytes) && place_of(b->call.from, &other, &other_bytes) && bytes == other_bytes &&
        at != other)
        fatal("NCCL order: %s at byte %zu of its memory, %s at byte %zu of as much", describe_call(a).c_str(), at,
              describe_call(b).c_str(), other);
}

void post_round(const Post &p) {
    Clique *q = p->rank->clique.get();
    uint64_t number = p->rank->round++;
    std::vector<Post> &posts = q->rounds[number];
    if (!posts.empty()) {
        const Call &a = posts[0]->call, &b = p->call;
        if (a.kind != b.kind || a.count != b.count || a.type != b.type || a.op != b.op || a.peer != b.peer)
            fatal("NCCL mismatch: in collective %llu of %d ranks, %s, but %s", (unsigned long long)number + 1, q->n,
                  describe_call(posts[0]).c_str(), describe_call(p).c_str());
        check_same_place(posts[0], p);
    }
    posts.push_back(p);
    for (const Post &o : posts)
        if (o->rank->aborted) return;
    if ((int)posts.size() < q->n) return;
    move_round(posts);
    q->rounds.erase(number);
}

void post_mail(const Post &p) {
    Clique *q = p->rank->clique.get();
    bool sends = p->call.kind == SEND;
    auto &box =
        q->mail[sends ? std::make_pair(p->rank->rank, p->call.peer) : std::make_pair(p->call.peer, p->rank->rank)];
    (sends ? box.first : box.second).push_back(p);
    auto gone = [](const Post &o) { return o->rank->aborted; };
    box.first.erase(std::remove_if(box.first.begin(), box.first.end(), gone), box.first.end());
    box.second.erase(std::remove_if(box.second.begin(), box.second.end(), gone), box.second.end());
    if (box.first.empty() || box.second.empty()) return;
    Post s = box.first.front(), r = box.second.front();
    box.first.pop_front();
    box.second.pop_front();
    if (s->call.count != r->call.count || s->call.type != r->call.type)
        fatal("NCCL mismatch: %s, but %s", describe_call(s).c_str(), describe_call(r).c_str());
    run_as("Send and Recv", r->rank->device, 1u << r->rank->device | 1u << s->rank->device,
           [&] {
               size_t bytes = s->call.count * size_of(s->call.type);
               after(q);
               reads(s->call.from, bytes);
               writes(r->call.to, bytes);
               memmove(r->call.to, s->call.from, bytes);
               before(q);
           });
    s->done = r->done = true;
}

struct Exchange : Work {
    struct Run;
    std::shared_ptr<Rank> rank;
    std::vector<Call> calls;
    uint64_t ticket = 0; /* 0: in a graph */
    struct Run : Execution {
        const Exchange *work;
        std::shared_ptr<Work> keep;
        std::vector<Post> posts;
        bool begun = false, over = false;
        bool ended() override {
            Rank *r = work->rank.get();
            if (over) return true;
            if (!begun && !r->aborted) {
                /* The calls on one communicator go in their order, whatever streams they are on. */
                if (r->dead || !r->clique->ready() || (work->ticket && work->ticket != r->begun + 1)) return false;
                begun = true;
                if (work->ticket) r->begun++;
                on_lane(lane_now, [&] { before(r->clique.get()); });
                for (const Call &c : work->calls) posts.push_back(Post(new Posted{work->rank, c, false, ""}));
                for (const Post &p : posts) {
                    const bool mail = p->call.kind == SEND || p->call.kind == RECEIVE;
                    if (mail && together() && !is_here(r->clique.get(), p->call.peer)) post_letter(p);
                    else if (mail) post_mail(p);
                    else if (together()) post_sum(p);
                    else post_round(p);
                }
                changed();
            }
            for (const Post &p : posts) {
                if (p->call.kind == RECEIVE) fetch_letter(p);
                else if (p->call.kind == ALL_REDUCE) fetch_round(p);
                if (!p->done && !r->aborted) return false;
            }
            over = true;
            changed();
            on_lane(lane_now, [&] { after(r->clique.get()); });
            if (work->ticket) r->ended++;
            return true;
        }
        std::string waits_for() override {
            Rank *r = work->rank.get();
            char text[200];
            if (!begun) {
                snprintf(text, sizeof text, "%s of rank %d, which %s", kind_name(work->calls[0]), r->rank,
                         r->dead              ? "died"
                         : r->clique->ready() ? "has other calls to make first"
                                              : "is not joined by all ranks");
                return text;
            }
            for (const Post &p : posts) {
                if (p->done) continue;
                std::string s = "the others, as " + describe_call(p);
                if (p->call.kind == SEND || p->call.kind == RECEIVE) return s;
                s += "; not there:";
                for (auto &round : r->clique->rounds) {
                    if (std::find(round.second.begin(), round.second.end(), p) == round.second.end()) continue;
                    for (int i = 0; i < r->clique->n; i++) {
                        bool there = false;
                        for (const Post &o : round.second) there = there || o->rank->rank == i;
                        snprintf(text, sizeof text, " rank %d", i);
                        if (!there) s += text;
                    }
                }
                return s;
            }
            return "nothing";
        }
    };
    std::shared_ptr<Execution> begin() override {
        std::shared_ptr<Run> run(new Run());
        run->work = this;
        return run;
    }
};

void check_comm(ncclComm_t comm, const char *call) {
    if (!comms.count(comm)) fatal("wrong handle: %s of a communicator that was destroyed, or never was", call);
}

ncclResult_t launch_calls(const Waiting &w) {
    std::shared_ptr<Exchange> work(new Exchange());
    Rank *r = w.comm->rank.get();
    if (stream_device(w.stream) != r->device)
        fatal("wrong device: NCCL's rank %d is on device %d, its stream on %d", r->rank, r->device,
              stream_device(w.stream));
    work->what = kind_name(w.calls[0]);
    work->rank = w.comm->rank;
    work->device = r->device;
    work->calls = w.calls;
    if (!stream_captures(w.stream)) work->ticket = ++r->issued;
    return enqueue(w.stream, work, "a call of NCCL") ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t launch_all(const std::vector<Waiting> &calls) {
    ncclResult_t result = ncclSuccess;
    for (const Waiting &w : calls) {
        ncclResult_t r = launch_calls(w);
        if (result == ncclSuccess) result = r;
    }
    return result;
}

void end_job(Job *job, ncclResult_t result) {
    const std::vector<std::shared_ptr<Rank>> ranks = std::move(job->ranks); /* which hold the job */
    job->over = true;
    job->calls.clear();
    for (auto &r : ranks)
        if (r->error == ncclSuccess) r->error = result;
}

/* Somebody asks how far it is. */
void advance(Job *job) {
    for (auto &r : job->ranks)
        if (job->joins ? !r->clique->ready() : r->rank == options().never_issues) return;
    if (--job->polls <= 0) end_job(job, launch_all(job->calls));
}

bool in_progress(const Rank *r) { return r->job && !r->job->over; }

ncclResult_t begin_job(const Group &g) {
    std::shared_ptr<Job> job(new Job());
    job->calls = g.calls;
    job->joins = !g.joins.empty();
    for (ncclComm_t c : g.joins) job->ranks.push_back(c->rank);
    for (const Waiting &w : g.calls)
        if (std::find(job->ranks.begin(), job->ranks.end(), w.comm->rank) == job->ranks.end())
            job->ranks.push_back(w.comm->rank);
    bool issues = true;
    for (auto &r : job->ranks) {
        r->job = job;
        issues = issues && r->rank != options().never_issues;
    }
    if (options().seed) job->polls = 1 + (int)(dice() % 4);
    if (!options().seed || dice() % 2 || !issues) return ncclInProgress;
    ncclResult_t result = launch_all(job->calls);
    job->calls.clear();
    if (result != ncclSuccess) end_job(job.get(), result);
    return ncclInProgress;
}

ncclResult_t end_group() {
    Group g;
    std::swap(g, group);
    int blocking = 0, others = 0;
    for (ncclComm_t c : g.joins) (c->rank->blocking ? blocking : others)++;
    for (const Waiting &w : g.calls) (w.comm->rank->blocking ? blocking : others)++;
    if (g.failed || (blocking && others)) {
        for (ncclComm_t c : g.joins) c->rank->clique->torn = true;
        return g.failed ? ncclInvalidUsage : ncclInvalidArgument;
    }
    if (others) return begin_job(g);
    for (ncclComm_t c : g.joins) {
        std::shared_ptr<Rank> r = c->rank;
        std::string call = "joining a communicator as rank " + std::to_string(r->rank) + " of " +
                           std::to_string(r->clique->n);
        wait_until(call.c_str(), nullptr, [=] { return r->clique->ready() || r->clique->failed; });
        if (r->clique->failed) return ncclInvalidUsage;
    }
    return launch_all(g.calls);
}

ncclResult_t add_call(const char *name, ncclComm_t comm, cudaStream_t stream, const Call &c, size_t in, size_t out) {
    Entry entry;
    cudaError_t injected = cudaSuccess;
    if (entry.fails(name, &injected)) {
        group.failed = group.depth > 0;
        return injected ? ncclUnhandledCudaError : ncclSystemError;
    }
    check_comm(comm, name);
    check_stream(stream, name);
    Rank *r = comm->rank.get();
    if (in_progress(r)) {
        fprintf(stderr,
                "sim: note: NCCL: %s of rank %d before what was asked of it is under way; poll ncclCommGetAsyncError\n",
                name, r->rank);
        r->error = ncclInvalidArgument;
    } else if (!r->clique->ready()) {
        r->error = ncclInvalidUsage;
    }
    if (r->error != ncclSuccess) {
        group.failed = group.depth > 0;
        return r->error;
    }
    size_t size = size_of(c.type);
    const void *buffers[2] = {in ? c.from : nullptr, out ? c.to : nullptr};
    for (int i = 0; i < 2; i++) {
        size_t bytes = (i ? out : in) * size;
        if (!bytes || !c.count) continue;
        if (device_of_address(buffers[i]) != r->device)
            fatal("%s: %s of rank %d, on device %d, with memory at %s",
                  device_of_address(buffers[i]) < 0 ? "host pointer" : "memory of another device", name, r->rank,
                  r->device, describe(buffers[i]).c_str());
        check_range(name, buffers[i], bytes);
    }
    if (c.peer < 0 || c.peer >= r->clique->n) return ncclInvalidArgument;
    if (!group.depth) {
        group.calls.push_back({comm, stream, {c}});
        return end_group();
    }
    for (Waiting &w : group.calls)
        if (w.comm == comm && w.stream == stream) {
            w.calls.push_back(c);
            return ncclSuccess;
        }
    group.calls.push_back({comm, stream, {c}});
    return ncclSuccess;
}

ncclResult_t join(ncclComm_t *out, int n, const std::string &id, int rank, int device, bool blocking) {
    *out = nullptr;
    if (n < 1 || rank < 0 || rank >= n) return ncclInvalidArgument;
    std::shared_ptr<Clique> &q = meetings[id];
    if (!q) {
        q.reset(new Clique());
        q->n = n;
        q->id = id;
        q->ranks.resize((size_t)n);
        cliques.push_back(q);
    }
    if (q->n != n || q->ranks[(size_t)rank]) return ncclInvalidArgument;
    std::shared_ptr<Rank> r(new Rank());
    r->clique = q;
    r->rank = rank;
    r->device = device;
    r->blocking = blocking;
    for (auto &other : q->ranks)
        if (other && other->device == device) {
            fprintf(stderr, "sim: note: NCCL: Duplicate GPU detected: ranks %d and %d both on device %d\n", other->rank,
                    rank, device);
            q->failed = true;
        }
    q->ranks[(size_t)rank] = r;
    *out = new ncclComm{r, ++made};
    comms.insert(*out);
    if (rank != options().never_joins && ++q->joined == n) meetings.erase(id);
    if (together() && rank != options().never_joins) {
        FILE *f = fopen(q->file("joined." + std::to_string(rank)).c_str(), "wb");
        if (!f || fclose(f) != 0) fatal("no file could be written to %s", folder.c_str());
    }
    changed();
    return ncclSuccess;
}
} // namespace

bool mirt_sim::together() { return !folder.empty(); }
void mirt_sim_together(const char *where) { folder = where; }

int mirt_sim::nccl_leaks() {
    for (ncclComm_t c : comms) fprintf(stderr, "sim: leak: communicator %ld, rank %d\n", c->number, c->rank->rank);
    return (int)comms.size();
}

void mirt_sim::refuse_beside_exchanges(const char *what) {
    if (ranks_killed()) return;
    for (ncclComm_t c : comms) {
        const Rank *r = c->rank.get();
        const bool waits = in_progress(r) && !r->job->joins;
        if (!r->aborted && r->error == ncclSuccess && (waits || r->ended != r->issued))
            fatal("beside an exchange: %s while a collective of rank %d is under way", what, r->rank);
    }
}

bool mirt_sim::ranks_killed() {
    for (ncclComm_t c : comms)
        for (auto &r : c->rank->clique->ranks)
            if (r && r->dead) return true;
    return false;
}

void mirt_sim::kill_rank(int rank, bool silently) {
    Entry entry;
    for (auto &weak : cliques)
        if (std::shared_ptr<Clique> q = weak.lock())
            for (auto &r : q->ranks) {
                if (!r || rank >= q->n) continue;
                if (r->rank == rank) r->dead = true;
                if (!silently && r->error == ncclSuccess)
                    r->error = r->rank == rank ? ncclSystemError : ncclRemoteError;
            }
    changed();
}

#define NCCL(name) \
    Entry entry; \
    cudaError_t injected = cudaSuccess; \
    if (entry.fails(name, &injected)) return injected ? ncclUnhandledCudaError : ncclSystemError

ncclResult_t ncclGetVersion(int *version) {
    *version = options().nccl ? options().nccl : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    NCCL("ncclGetUniqueId");
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "simulated %ld %ld", (long)getpid(), ++ids);
    return ncclSuccess;
}

/* The environment has the last word. */
static bool blocks(const ncclConfig_t *config) {
    const char *wish = getenv("NCCL_COMM_BLOCKING");
    return wish && *wish ? atoi(wish) != 0 : !config || config->blocking != 0;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config) {
    NCCL("ncclCommInitRankConfig");
    if (config && (config->magic != 0xcafebeef || config->size != sizeof *config)) return ncclInvalidArgument;
    ncclResult_t result = join(comm, n, std::string(id.internal, strnlen(id.internal, sizeof id.internal)), rank,
                               current_device(), blocks(config));
    if (result != ncclSuccess) {
        group.failed = group.depth > 0;
        return result;
    }
    group.joins.push_back(*comm);
    return group.depth ? ncclSuccess : end_group();
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, n, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices) {
    NCCL("ncclCommInitAll");
    std::string id = "all " + std::to_string(++ids);
    for (int i = 0; i < n; i++) {
        ncclResult_t result = join(&out[i], n, id, i, devices ? devices[i] : i, true);
        if (result != ncclSuccess) return result;
    }
    return n > 0 && out[0]->rank->clique->failed ? ncclInvalidUsage : ncclSuccess;
}

static ncclResult_t forget(ncclComm_t comm) {
    Clique *q = comm->rank->clique.get();
    if (in_progress(comm->rank.get())) {
        if (comm->rank->job->joins) q->torn = true;
        end_job(comm->rank->job.get(), ncclInternalError); /* for all whose group it was */
    }
    if (q->joined < q->n && !together()) q->torn = true;
    q->ranks[(size_t)comm->rank->rank].reset();
    bool empty = true;
    for (auto &r : q->ranks) empty = empty && !r;
    if (empty) {
        for (auto at = meetings.begin(); at != meetings.end();
             at = at->second.get() == q ? meetings.erase(at) : std::next(at)) {}
        q->rounds.clear();
        q->mail.clear();
    }
    comms.erase(comm);
    delete comm;
    changed();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    NCCL("ncclCommFinalize");
    check_comm(comm, "ncclCommFinalize");
    if (in_progress(comm->rank.get())) return ncclInvalidArgument;
    std::shared_ptr<Rank> r = comm->rank;
    wait_until("ncclCommFinalize", nullptr, [=] { return r->ended == r->issued; });
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    FREEING();
    if (!comm) return ncclSuccess;
    check_comm(comm, "ncclCommDestroy");
    if (in_progress(comm->rank.get())) return ncclInvalidArgument;
    std::shared_ptr<Rank> r = comm->rank;
    wait_until("ncclCommDestroy", nullptr, [=] { return r->ended == r->issued; });
    return forget(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    FREEING();
    if (!comm) return ncclSuccess;
    check_comm(comm, "ncclCommAbort");
    comm->rank->aborted = true;
    return forget(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    NCCL("ncclCommGetAsyncError");
    check_comm(comm, "ncclCommGetAsyncError");
    Rank *r = comm->rank.get();
    if (in_progress(r) && !r->clique->failed) advance(r->job.get());
    *error = r->clique->failed ? ncclInvalidUsage : in_progress(r) || !r->clique->ready() ? ncclInProgress : r->error;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    FREEING();
    check_comm(comm, "ncclCommCount");
    if (in_progress(comm->rank.get())) return ncclInvalidArgument;
    *count = comm->rank->clique->n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    FREEING();
    check_comm(comm, "ncclCommUserRank");
    if (in_progress(comm->rank.get())) return ncclInvalidArgument;
    *rank = comm->rank->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    FREEING();
    check_comm(comm, "ncclCommCuDevice");
    if (in_progress(comm->rank.get())) return ncclInvalidArgument;
    *device = comm->rank->device;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < 8 ? names[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t) { return "simulated"; }

ncclResult_t ncclGroupStart() {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (!group.depth) return ncclInvalidUsage;
    if (--group.depth) return ncclSuccess;
    Entry entry;
    cudaError_t injected = cudaSuccess;
    if (entry.fails("ncclGroupEnd", &injected)) {
        group = Group();
        return injected ? ncclUnhandledCudaError : ncclSystemError;
    }
    return end_group();
}

static const Rank *rank_of(ncclComm_t comm) {
    FREEING();
    check_comm(comm, "a collective");
    return comm->rank.get();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclAllReduce", comm, stream, {ALL_REDUCE, from, to, count, type, op, 0}, count, count);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclReduce", comm, stream, {REDUCE_TO, from, to, count, type, op, root}, count,
                    rank_of(comm)->rank == root ? count : 0);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return add_call("ncclBroadcast", comm, stream, {BROADCAST, from, to, count, type, ncclSum, root},
                    rank_of(comm)->rank == root ? count : 0, count);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return add_call("ncclAllGather", comm, stream, {ALL_GATHER, from, to, count, type, ncclSum, 0}, count,
                    count * (size_t)rank_of(comm)->clique->n);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclReduceScatter", comm, stream, {REDUCE_SCATTER, from, to, count, type, op, 0},
                    count * (size_t)rank_of(comm)->clique->n, count);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_call("ncclSend", comm, stream, {SEND, from, nullptr, count, type, ncclSum, peer}, count, 0);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add_call("ncclRecv", comm, stream, {RECEIVE, nullptr, to, count, type, ncclSum, peer}, 0, count);
}
