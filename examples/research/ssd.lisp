; The state-space duality of Mamba-2 ("Transformers are SSMs", Dao and Gu 2024): inside a chunk a recurrence is attention
; whose scores decay, and from chunk to chunk a state of each head is handed on.
(require nn arrays algebra scan training)
(config inputs 4  heads 2  width 8  states 3  chunk 4  classes 5)
(weights (in-w [(+ width states states heads) inputs] {:init (normal 0.3)}) (in-b [(+ width states states heads)])
  (rates [heads] {:init 1}) (norm-w [width] {:init 1}) (norm-b [width]) (head-w [classes width] {:init (normal 0.3)}))

; x [texts chunks chunk heads size], what of it is said [… states], what is asked [… states], and logarithms of what
; a head keeps at each step [texts chunks chunk heads] -> as x
(defn remembered [x said asked kept]
  (let [[n chunks _ _ size] (shape x)
        so-far (cumsum kept 2)
        between (tensor [n n m chunks h heads i chunk j chunk]
                  (select (>= i j) (exp (min 0.0 (- (at so-far n m i h) (at so-far n m j h)))) 0.0))
        scores (einsum [n m i j] asked [n m i s] said [n m j s])
        near (einsum [n m i h p] (* between (tensor [n n m chunks h heads i chunk j chunk] (at scores n m i j)))
               [n m h i j] x [n m j h p])
        to-end (tensor [n n m chunks j chunk h heads] (exp (- (at so-far n m (- chunk 1) h) (at so-far n m j h))))
        made (einsum [m n h p s] (* x (tensor [n n m chunks j chunk h heads p size] (at to-end n m j h)))
               [n m j h p] said [n m j s])
        over-all (tensor [m chunks n n h heads] (exp (at so-far n m (- chunk 1) h)))
        [_ before] (scan (fn [state [new share]]
                           [(+ new (tensor [n n h heads p size s states] (* (at state n h p s) (at share n h)))) state])
                         (full [n heads size states] 0.0 f32) [made over-all])
        far (einsum [n m i h p] asked [n m i s] before [m n h p s])]
    (+ near (tensor [n n m chunks i chunk h heads p size] (* (at far n m i h p) (exp (at so-far n m i h)))))))

(entry fit [(x [batch length inputs] f32) (labels [batch] i32)]
  (let [[n length _] (shape x)  chunks (quot length chunk)  size (quot width heads)
        told (linear (reshape x [(* n length) inputs]) in-w in-b)
        [u said asked time] (split told [width states states heads] 1)
        time (softplus time)
        kept (reshape (tensor [r (* n length) h heads] (- 0.0 (* (at time r h) (exp (at rates h))))) [n chunks chunk heads])
        time (reshape time [n chunks chunk heads])
        u (reshape u [n chunks chunk heads size])
        u (tensor [n n m chunks i chunk h heads p size] (* (at u n m i h p) (at time n m i h)))
        y (remembered u (reshape said [n chunks chunk states]) (reshape asked [n chunks chunk states]) kept)
        means (mean (reshape y [n length width]) 1)
        [loss right] (cross-entropy (matmul-transposed (layer-norm means norm-w norm-b) head-w) labels classes)]
    {:loss loss :right right}))
(training fit)
